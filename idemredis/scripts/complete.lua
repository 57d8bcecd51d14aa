-- Settles the claim: token, state, retention, and the fields of the response.
-- Returns the time of completion, or nothing if the token does not hold the key.
local holds, state = held(ARGV[1])
if not holds then return false end
if state ~= 'processing' then return redis.call('HGET', key, 'completed') or '' end

local expires = now + ARGV[3]
redis.call('HSET', key, 'state', ARGV[2], 'completed', int(now), 'expires', int(expires), unpack(ARGV, 4))
expire(expires)
return int(now)
