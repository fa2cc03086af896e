-- KEYS: lock, queue, timeouts, writers. In a cluster the guard follows: see guardOf.
-- ARGV: prefix of the holder value, channel, channel of RReadWriteLock, owner.
-- Makes the exclusive lock a shared one. Returns 1 if the lock is held with that prefix.
local lock, prefix, owner = KEYS[1], ARGV[1], ARGV[4]
local mode = mode_of(lock)
if mode and mode ~= 'write' then
	local has_share = mode == 'read' and redis.call('hexists', lock, owner) == 1
	return has_share and starts_with(share_value(lock, owner), prefix) and 1 or 0
end
local value = value_of(lock)
if not value or not starts_with(value, prefix) then
	return 0
end
redis.call('set', share_key(lock, owner, 1), string.sub(value, #owner + 2), 'PX', math.max(1, redis.call('pttl', lock)))
redis.call('hset', lock, 'mode', 'read', owner, 1)
redis.call('hdel', lock, value)
notify(lock, KEYS[2], KEYS[3], KEYS[4], ARGV[2], mode)
publish_java_rw(ARGV[3])
return 1
