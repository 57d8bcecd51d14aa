-- Claims the key: token, execution, hash, hash version, reclaimed, lease,
-- retention, and, to take over the record that was seen, its state, token and
-- attempt. Returns now and: the attempt, if it has; the record, if there is
-- another; nothing, if the record to take over is gone.
local found = redis.call('HGETALL', key)
local r = {}
for i = 1, #found, 2 do r[found[i]] = found[i + 1] end

local expires = tonumber(r.expires)
local absent = #found == 0 or (expires and expires <= now)
local attempt = 1
if not absent then
	local lease = tonumber(r.lease_end)
	local same = ARGV[8] and r.state == ARGV[8] and (r.token or '') == ARGV[9] and r.attempt == ARGV[10]
	if not (same and r.state == 'processing' and lease and lease <= now) then
		-- Somebody has taken its time to live away. That it has expires again is
		-- nothing new for the record.
		if expires and redis.call('PTTL', key) == -1 then expire(expires) end
		return {int(now), found}
	end
	attempt = r.attempt + 1
elseif ARGV[8] then
	return {int(now)}
end

local lease_end = now + ARGV[6]
expires = lease_end + ARGV[7]
if #found > 0 then redis.call('DEL', key) end
redis.call('HSET', key, 'state', 'processing', 'token', ARGV[1], 'execution', ARGV[2],
	'hash', ARGV[3], 'hash_version', ARGV[4], 'reclaimed', ARGV[5], 'attempt', int(attempt),
	'lease_end', int(lease_end), 'expires', int(expires))
expire(expires)
return {int(now), attempt}
