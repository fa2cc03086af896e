-- KEYS: lock. ARGV: prefix of the holder value, channel. Returns 1 if the lock was held with that prefix.
local value = redis.call('get', KEYS[1])
if not value or string.sub(value, 1, #ARGV[1]) ~= ARGV[1] then
	return 0
end
redis.call('del', KEYS[1])
publish(ARGV[2])
return 1
