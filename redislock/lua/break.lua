-- KEYS lock, queue, timeouts. ARGV token, channel.
-- Returns 1 if the lock was held with that token, or by another program's holder
-- with that number.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local mark = mark_of(lock)
if not mark or (token_of(mark) or stranger_id(mark)) ~= ARGV[1] then
	return 0
end
redis.call('del', lock)
publish(ARGV[2])
local head = queue and first_in(queue, timeouts, math.floor(clock() / 1000))
if head then
	publish(ARGV[2] .. ':' .. head)
end
return 1
