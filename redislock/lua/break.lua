-- KEYS: lock, queue, timeouts. ARGV: token, channel.
-- Deletes the lock if it is held with that token, or by another program's holder with that
-- number. Returns 1 if it did.
local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local value = value_of(lock)
if not value or (token_of(value) or foreign_token(value)) ~= ARGV[1] then
	return 0
end
redis.call('del', lock)
publish(ARGV[2])
local head = queue and head_of(queue, timeouts, math.floor(clock() / 1000))
if head then
	publish(ARGV[2] .. ':' .. head)
end
return 1
