-- Begins the claim: what it finds is mostly settled. If Redis is to keep that for
-- more than a millisecond, it has not expired, and the time does not matter: to ask
-- for it would cost more than the rest. Returns the milliseconds that are left, as
-- a negative number, and the record.
if record and string.find(record, '^1 %d+ %d+ [sf]') then
	local left = redis.call('PTTL', key)
	if left > 1 then return {-left, record} end
end

