-- Claims the key: lease, retention, the words of the new record from the state
-- on, and, to take over the record that was seen, its words from the state to the
-- attempt. Returns now, if it has; else now and the record that stands in the way,
-- or nothing, if the one to take over is gone.
if record then
	local seen = ARGV[4] and from and string.sub(record, from, from + #ARGV[4] - 1) == ARGV[4]
	if not seen or ends > now then
		-- Somebody has taken its time to live away: it is gone at the next
		-- opportunity after the record has expired.
		if expires and redis.call('PTTL', key) == -1 then
			redis.call('PEXPIREAT', key, string.format('%.0f', math.min(expires / 1000 + 1, now / 1000 + 6307200000000)))
		end
		return {now, record}
	end
elseif ARGV[4] then
	return {now, false}
end

ends = now + ARGV[1]
expires = ends + ARGV[2]
local words = ARGV[3]
