-- KEYS lock. ARGV mark, channel. Returns 1 if the lock was held with that mark.
-- The mark is the only field, so that the lock ends with it.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
	return 0
end
publish(ARGV[2])
return 1
