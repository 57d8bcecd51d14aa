-- Renews the claim: token, lease, retention. Returns nothing if the token does
-- not hold it.
if state ~= 'processing' then return false end

ends = now + ARGV[2]
expires = ends + ARGV[3]
local words = string.sub(record, from)
