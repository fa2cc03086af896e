-- KEYS: lock. ARGV: holder value, channel, channel of RReadWriteLock. Returns 1 if an exclusive
-- holder had the lock with that value.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
	return 0
end
redis.call('del', KEYS[1])
publish(ARGV[2])
publish_java_rw(ARGV[3])
return 1
