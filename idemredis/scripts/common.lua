-- Begins every script. Instants are microseconds since 1970 by this server's
-- clock. Lua's numbers are exact for them until the year 2255, and within two
-- microseconds after that; they are written in full, never with an exponent.
local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function int(n) return string.format('%.0f', n) end

-- Gives the key the time to live of a record that expires then: rounded up to
-- the millisecond, and 200 years at most.
local function expire(at)
	redis.call('PEXPIREAT', key, int(math.ceil(math.min(at, now + 6307200000000000) / 1000)))
end

-- Reports whether the key has a record that has not expired and that the token
-- made, and the record's state. A record with no token is held by none.
local function held(token)
	local r = redis.call('HMGET', key, 'token', 'state', 'expires')
	return r[1] == token and now < (tonumber(r[3]) or now), r[2]
end
