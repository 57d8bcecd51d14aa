-- Ends every script that writes: what is in expires, ends and words. The key's
-- time to live is the record's, rounded up to the millisecond, and 200 years at
-- most.
local deadline = math.ceil(math.min(expires, now + 6307200000000000) / 1000)
redis.call('SET', key, string.format('1 %.0f %.0f ', expires, ends) .. words, 'PXAT', string.format('%.0f', deadline))
return now
