-- KEYS: lock, queue, timeouts. ARGV: prefix of the holder value, owner, channel.
-- Releases the lock and the owner's place in the queue, and notifies the next waiter.
-- Returns 1 if the lock was held with that prefix.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local value = value_of(lock)
local released = 0
if value and starts_with(value, ARGV[1]) then
	redis.call('del', lock)
	value, released = false, 1
end
local left = 0
if queue then
	left = redis.call('lrem', queue, 0, ARGV[2]) + redis.call('zrem', timeouts, ARGV[2])
end
if value or (released == 0 and left == 0) then
	return released
end
local head = queue and head_of(queue, timeouts, math.floor(clock() / 1000))
if head then
	publish(ARGV[3] .. ':' .. head)
else
	publish(ARGV[3])
end
return released
