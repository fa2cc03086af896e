-- KEYS: lock. ARGV: token, channel, channel of RReadWriteLock (unused).
-- Deletes the lock if its holder has that token, or by another program's holder with that
-- number. Returns 1 if it did.
local value = value_of(KEYS[1])
if not value or not has_token(value, ARGV[1]) then
	return 0
end
redis.call('del', KEYS[1])
publish(ARGV[2])
return 1
