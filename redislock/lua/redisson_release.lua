-- KEYS: lock, queue, timeouts, writers. In a cluster the guard follows: see guardOf.
-- ARGV: prefix of the holder value, channel, channel of RReadWriteLock, owner.
-- Releases what the owner has: the lock, a share of it, and its place. It notifies the waiters that
-- may be granted the lock now. Returns 1 if the lock was held with that prefix.
local lock, queue, timeouts, writers, prefix, owner = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[4]
local mode = mode_of(lock)
local released, freed, shared = 0, false, mode and mode ~= 'write'
if not shared then
	local value = value_of(lock)
	if value and starts_with(value, prefix) then
		redis.call('del', lock)
		released, freed = 1, true
	end
elseif redis.call('hexists', lock, owner) == 1 then
	local value = share_value(lock, owner)
	if value == owner or starts_with(value, prefix) then -- it is only the owner if the share has expired
		released = value == owner and 0 or 1
		freed = end_share(lock, mode, owner)
		if not freed then
			notify_of_java(lock, ARGV[2])
		end
	end
end
local removed = redis.call('zrem', writers, owner)
for _, kind in ipairs({'', 'r', 'p'}) do
	removed = removed + redis.call('lrem', queue, 0, owner .. kind) + redis.call('zrem', timeouts, owner .. kind)
end
if removed > 0 then
	leave_to_java(queue, timeouts)
end
local held = redis.call('exists', lock) == 1
if freed and not held then
	publish_java_rw(ARGV[3])
end
-- The next waiter may not know of a writer of Java, which publishes on a channel of its own: see
-- notify_of_java.
local java_writes = held and not shared and is_java_rw(lock, value_of(lock) or '') == 1
if freed or removed > 0 and (shared or not held or java_writes) then
	notify(lock, queue, timeouts, writers, ARGV[2], mode)
end
return released
