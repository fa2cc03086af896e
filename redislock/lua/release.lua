-- KEYS lock, queue, timeouts. ARGV prefix of the mark, owner, channel.
-- Gives up the lock and a place in the queue, and tells the next.
-- Returns 1 if the lock was held with a mark of that prefix.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local mark = mark_of(lock)
local released = 0
if mark and starts_with(mark, ARGV[1]) then
	redis.call('del', lock)
	mark, released = false, 1
end
local left = 0
if queue then
	left = redis.call('lrem', queue, 0, ARGV[2]) + redis.call('zrem', timeouts, ARGV[2])
end
if mark or (released == 0 and left == 0) then
	return released
end
local head = queue and first_in(queue, timeouts, math.floor(clock() / 1000))
if head then
	publish(ARGV[3] .. ':' .. head)
else
	publish(ARGV[3])
end
return released
