-- KEYS lock, counter, queue, timeouts. ARGV ttl, owner, floor, holder, queues, channel.
-- Returns {clock, token}, or {mark, remaining, position}.
local lock, counter, queue, timeouts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ttl, owner = ARGV[1], ARGV[2]
local clock_now = clock()
local now = math.floor(clock_now / 1000)
local mark = mark_of(lock)
if mark and starts_with(mark, owner .. ':') then
	if redis.call('pttl', lock) < tonumber(ttl) then -- asking again never shortens
		redis.call('pexpire', lock, ttl)
	end
	return {digits(clock_now), token_of(mark)}
end
local head = first_in(queue, timeouts, now)
if not mark and (not head or head == owner) then
	local token = draw(counter, math.max(tonumber(ARGV[3]), clock_now))
	if head then
		redis.call('lpop', queue)
		redis.call('zrem', timeouts, owner)
	end
	return write(lock, owner .. ':' .. token .. ':' .. ARGV[4], ttl) or {digits(clock_now), token}
end

local remaining
if mark then
	remaining = redis.call('pttl', lock)
else
	remaining = math.max(1, math.ceil(tonumber(redis.call('zscore', timeouts, head)) - now))
	publish(ARGV[6] .. ':' .. head) -- it may not know that it is its turn
end
if ARGV[5] == '0' then
	return {mark or '', remaining, 1}
end

-- A place lasts for a TTL after the last attempt, and for what Redisson's
-- waiters ahead take off when they are served.
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
-- The list alone says who has a place: an owner may be in one of the two only.
if not placed and not redis.call('lpos', queue, owner) then
	redis.call('rpush', queue, owner)
end
-- Should all who wait die, nothing is left for ever.
local last = redis.call('zrange', timeouts, -1, -1, 'WITHSCORES')[2]
local expiry = digits(tonumber(last) - now + 3600000)
redis.call('pexpire', queue, expiry)
redis.call('pexpire', timeouts, expiry)
return {mark or '', remaining, 1}
