-- Frees the claim: token, retention. Returns nothing if the token does not hold it.
if state ~= 'processing' then return false end

ends = now
expires = now + ARGV[2]
local words = 'processing - ' .. string.sub(record, rest)
