-- Renews the claim: token, lease, retention. Returns nothing if the token does
-- not hold it.
local holds, state = held(ARGV[1])
if not holds or state ~= 'processing' then return false end

local lease_end = now + ARGV[2]
local expires = lease_end + ARGV[3]
redis.call('HSET', key, 'lease_end', int(lease_end), 'expires', int(expires))
expire(expires)
return 1
