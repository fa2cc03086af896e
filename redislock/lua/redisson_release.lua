-- KEYS: lock. ARGV: holder value, channel. Returns 1 if the lock was held with that value.
-- The value is the only field, so the lock ends with it.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
	return 0
end
publish(ARGV[2])
return 1
