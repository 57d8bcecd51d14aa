-- Returns now and the record, if there is one.
local found = redis.call('HGETALL', key)
for i = 1, #found, 2 do
	if found[i] == 'expires' and (tonumber(found[i + 1]) or now + 1) <= now then return {int(now)} end
end
if #found == 0 then return {int(now)} end
return {int(now), found}
