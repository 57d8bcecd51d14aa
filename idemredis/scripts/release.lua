-- Frees the claim: token, retention. Returns nothing if the token does not hold it.
local holds, state = held(ARGV[1])
if not holds or state ~= 'processing' then return false end

local expires = now + ARGV[2]
redis.call('HDEL', key, 'token')
redis.call('HSET', key, 'lease_end', int(now), 'expires', int(expires))
expire(expires)
return 1
