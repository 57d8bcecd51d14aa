-- Instants are microseconds since 1970 by this server's clock. Lua's numbers are
-- exact for them until the year 2255, and within two microseconds after that; they
-- are written in full, never with an exponent.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A record is a string of words. Those from the state on begin at from. What is not
-- as the store writes it has none of these; what has expired is absent.
local expires, ends, from
if record then
	expires, ends, from = string.match(record, '^1 (%d+) (%d+) ()')
	expires, ends = tonumber(expires), tonumber(ends)
	if expires and expires <= now then record, from = false, nil end
end
