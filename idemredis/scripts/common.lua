-- Begins every script. Instants are microseconds since 1970 by this server's
-- clock. Lua's numbers are exact for them until the year 2255, and within two
-- microseconds after that; they are written in full, never with an exponent.
local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The record, a string of words, and where those from the state on begin. What is
-- not as the store writes it has none of these; what has expired is absent.
local record = redis.call('GET', key)
local expires, ends, from
if record then
	expires, ends, from = string.match(record, '^1 (%d+) (%d+) ()')
	expires, ends = tonumber(expires), tonumber(ends)
	if expires and expires <= now then record, from = false, nil end
end
