-- KEYS lock, counter, queue, timeouts. ARGV token, channel.
-- Returns 1 if the lock was held with that token. The token of a holder that
-- writes none itself is the counter's.
local lock, counter, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local mark = mark_of(lock)
if not mark or (token_of(mark) or digits(last_token(counter))) ~= ARGV[1] then
	return 0
end
redis.call('del', lock)
publish(ARGV[2])
local head = queue and first_in(queue, timeouts, math.floor(clock() / 1000))
if head then
	publish(ARGV[2] .. ':' .. head)
end
return 1
