-- KEYS: lock, counter, queue, timeouts. ARGV: ttl, owner, floor, holder, queues, channel.
-- Returns {clock, token}, or {holder value, remaining, position} if the lock is not granted.
local lock, counter, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, owner = ARGV[1], ARGV[2]
local clock_now = clock()
local now = math.floor(clock_now / 1000)
local value = value_of(lock)
if value and starts_with(value, owner .. ':') then
	prolong(lock, ttl)
	return {digits(clock_now), token_of(value)}
end
local head = head_of(queue, timeouts, now)
if not value and (not head or head == owner) then
	local token = draw(counter, math.max(tonumber(ARGV[3]), clock_now), 1)
	write(lock, owner .. ':' .. token .. ':' .. ARGV[4], ttl)
	if head then
		redis.call('lpop', queue)
		redis.call('zrem', timeouts, owner)
	end
	return {digits(clock_now), token}
end

local remaining
if value then
	remaining = redis.call('pttl', lock)
else
	remaining = math.max(1, math.ceil(tonumber(redis.call('zscore', timeouts, head)) - now))
	publish(ARGV[6] .. ':' .. head) -- it may have missed its notification
end
if ARGV[5] == '0' then
	return {value or '', remaining, 1}
end

-- A place lasts for a TTL after the last attempt, plus what Redisson will subtract for each of
-- its waiters ahead.
local ahead, placed = 0, false
for _, id in ipairs(redis.call('lrange', queue, 0, 99)) do
	if id == owner then
		placed = true
		break
	end
	if #id ~= OWN_ID then
		ahead = ahead + 1
	end
end
redis.call('zadd', timeouts, digits(now + ttl + ahead * FOREIGN_WAIT), owner)
-- Only the list decides whether the owner has a place: the set may have lost or kept it.
if not placed and not redis.call('lpos', queue, owner) then
	redis.call('rpush', queue, owner)
end
-- If all waiters die, the queue expires.
local last = redis.call('zrange', timeouts, -1, -1, 'WITHSCORES')[2]
local expiry = digits(tonumber(last) - now + 3600000)
redis.call('pexpire', queue, expiry)
redis.call('pexpire', timeouts, expiry)
return {value or '', remaining, 1}
