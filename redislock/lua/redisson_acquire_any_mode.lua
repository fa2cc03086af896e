-- KEYS: lock, counter, queue, timeouts, writers. In a cluster the guard follows: see guardOf.
-- ARGV: ttl, owner, holder, mode, fair, queues, place, channel, TTL of the place.
-- Acquires a lock in any mode: 'write', 'read' or a limit. Returns {clock, last token}. A refusal
-- is {holder value, remaining, position, mode, java_rw, queued}. The mode is that of the holder, or
-- empty if a place in the queue is in the way. java_rw is 1 if Java's RReadWriteLock is a holder,
-- and queued is 1 if a waiter may have a place in the queue.
--
-- Exclusive requests that are not fair and that shared holders refuse have a place in writers, a
-- sorted set of owners by the expiry of their places.
local lock, counter, queue, timeouts, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ttl, owner, want, fair, queues, place = ARGV[1], ARGV[2], ARGV[4], ARGV[5] == '1', ARGV[6] == '1', ARGV[7]
local place_ttl = ARGV[9]
local clock_now = clock()
local now = math.floor(clock_now / 1000)
local mode = mode_of(lock)
local limit, used = tonumber(want), 0

if mode and renew(lock, owner .. ':', ttl) then
	return {digits(clock_now), token_of(mode == 'write' and value_of(lock) or share_value(lock, owner))}
end

-- The holder value of a holder that refuses the request, or false.
local refused_by, remaining, java_rw = false, 0, 0
if mode == 'write' then
	refused_by, remaining = value_of(lock) or '', redis.call('pttl', lock)
	java_rw = is_java_rw(lock, refused_by)
elseif mode and mode == want then
	used = redis.call('hlen', lock) - 1
end
if mode and mode ~= 'write' and (mode ~= want or limit and used >= limit) then
	local live = live_shares(lock)
	used = #live
	for _, share in ipairs(live) do
		java_rw = math.max(java_rw, is_java_rw(lock, share[1]))
		remaining = remaining == 0 and share[2] or math.min(remaining, share[2])
	end
	if used == 0 then
		mode = false
	elseif mode ~= want or used >= limit then
		refused_by = share_value(lock, live[1][1])
		if not limit then
			remaining = redis.call('pttl', lock)
		end
	end
end
if refused_by and tonumber(mode) ~= limit then
	return {refused_by, remaining, 1, mode, java_rw} -- in use in another way
end

-- The place that has to be served before, if no holder refuses the request.
local first, expiry = false, 0
if not refused_by and want == 'read' then
	local writer = redis.call('zrange', writers, -1, -1, 'WITHSCORES')
	if writer[1] and tonumber(writer[2]) > now then
		first, expiry = writer[1], tonumber(writer[2])
	end
end
if not refused_by and not first and (fair or want ~= 'write') then
	-- The search ends at the request's own place, or at one that has to be served before: for an
	-- exclusive request any exclusive or shared place, for a shared one an exclusive place, and for
	-- a permit the place that takes the last free permit.
	local free = (limit or 0) - used
	local function ends_search(id)
		local kind = kind_of(id)
		if id == place then
			return true
		elseif limit or kind == 'p' then
			free = free - (kind == 'p' and 1 or 0)
			return limit and free <= 0
		end
		return want == 'write' or kind ~= 'r'
	end
	first, expiry = first_place(queue, timeouts, now, ends_search)
	if first == place then
		first = false
	elseif first then
		publish(ARGV[8] .. ':' .. first) -- it may have missed its notification
	end
end

if not refused_by and not first then
	local token = draw_tokens(counter, clock_now)
	if want == 'write' then
		write(lock, owner .. ':' .. token .. ':' .. ARGV[3], ttl)
		redis.call('zrem', writers, owner)
	else
		redis.call('set', share_key(lock, owner, 1), token .. ':' .. ARGV[3], 'PX', ttl)
		-- Before and after HSET, as in write: a user that may not set an expiry must leave no lock.
		prolong(lock, ttl)
		redis.call('hset', lock, 'mode', want, owner, 1)
		prolong(lock, ttl)
	end
	if fair and redis.call('zrem', timeouts, place) == 1 then
		redis.call('lrem', queue, 1, place)
		leave_to_java(queue, timeouts)
		-- The release notified one waiter, but the next one may be admitted as well.
		local next = first_place(queue, timeouts, now, function() return true end)
		local kind = next and kind_of(next)
		if kind == 'r' and want == 'read' or kind == 'p' and limit and used + 1 < limit then
			publish(ARGV[8] .. ':' .. next)
		end
	end
	return {digits(clock_now), token}
end

local refusal = {refused_by or '', remaining, 1, refused_by and mode or '', java_rw, redis.call('exists', queue)}
if not refused_by then
	refusal[2] = math.max(1, math.ceil(expiry - now))
end
if not queues then
	return refusal
end
if not fair then
	if want == 'write' and mode == 'read' then
		redis.call('zremrangebyscore', writers, 0, now)
		redis.call('zadd', writers, 'GT', digits(now + place_ttl), owner)
		prolong(writers, place_ttl)
	end
	return refusal
end

-- A place lasts for place_ttl after the last attempt, plus what Redisson will subtract for each of
-- its waiters ahead.
local ahead, placed = 0, false
for _, id in ipairs(redis.call('lrange', queue, 0, 99)) do
	if id == place then
		placed = true
		break
	end
	if string.find(id, '-', 1, true) then
		ahead = ahead + 1
	end
end
redis.call('zadd', timeouts, digits(now + place_ttl + ahead * FOREIGN_WAIT), place)
-- Only the list decides whether the owner has a place: the set may have lost or kept it.
if not placed and not redis.call('lpos', queue, place) then
	if redis.call('rpush', queue, place) == 1 then
		publish(ARGV[8]) -- so that waiters that are not fair find out that there is a queue
	end
end
-- If all waiters die, the queue expires.
local last = redis.call('zrange', timeouts, -1, -1, 'WITHSCORES')[2]
local expires = digits(tonumber(last) - now + 3600000)
redis.call('pexpire', queue, expires)
redis.call('pexpire', timeouts, expires)
return refusal
