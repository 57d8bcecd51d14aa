-- Settles the claim: token, state, retention, and the words of the response.
-- Returns the time of completion, or nothing if the token does not hold the key.
if state ~= 'processing' then return ends end

ends = now
expires = now + ARGV[3]
local words = ARGV[2] .. ' ' .. token .. ' ' .. string.sub(record, rest) .. ARGV[4]
