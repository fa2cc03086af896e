-- KEYS: lock. ARGV: prefix of the holder value, owner, channel. Returns 1 if the lock was held with
-- that prefix.
local value = value_of(KEYS[1])
if not value or not starts_with(value, ARGV[1]) then
	return 0
end
redis.call('del', KEYS[1])
publish(ARGV[3])
return 1
