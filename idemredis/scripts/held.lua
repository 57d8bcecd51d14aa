-- Follows where only the claim with the token ARGV[1] may go on: its state, and
-- where the words behind the token begin. Else there is nothing to return.
if not from then return false end
local state, token, rest = string.match(record, '^(%l+) (%S+) ()', from)
if token ~= ARGV[1] then return false end
