-- Begins every script.
local key = KEYS[1]
local record = redis.call('GET', key)
