-- The queue of Redisson's fair lock: a list of waiters, and a sorted set with the millisecond at
-- which the place of each waiter expires. The ID of an exclusive waiter of dlock is its owner. An
-- 'r' follows the owner if the waiter wants to share the lock, a 'p' if it wants a permit.

local FOREIGN_WAIT = 300000 -- what Redisson subtracts from all expiries when one of its waiters is served

-- kind_of returns '', 'r' or 'p'. Redisson's waiters are exclusive.
local function kind_of(id)
	return string.match(id, '^%x+([rp])$') or ''
end

-- first_place returns the ID and the expiry of the first place that matches, or false. It removes
-- the expired places before it.
local function first_place(queue, timeouts, now, matches)
	local at = 0
	while true do
		local ids = redis.call('lrange', queue, at, at + 99)
		for _, id in ipairs(ids) do
			local expiry = redis.call('zscore', timeouts, id)
			if not expiry or tonumber(expiry) <= now then
				redis.call('lrem', queue, 1, id)
				redis.call('zrem', timeouts, id)
			elseif matches(id) then
				return id, tonumber(expiry)
			else
				at = at + 1
			end
		end
		if #ids < 100 then
			return false
		end
	end
end

-- leave_to_java ends the expiry of a queue that a waiter of dlock has left, if its last waiter is one
-- of Redisson's. Redisson sets no expiry, and could not prolong it. Without the right to PERSIST the
-- queue expires: the call is not worth an error, because the lock has been granted or released.
local function leave_to_java(queue, timeouts)
	local last = redis.call('lindex', queue, -1)
	if last and string.find(last, '-', 1, true) then
		redis.pcall('persist', queue)
		redis.pcall('persist', timeouts)
	end
end

-- notify wakes the waiters that may be granted the lock now. In the queue these are the first one,
-- the shared ones that follow a shared one, and as many permits as are free. notify wakes all
-- waiters if the queue leaves a share or a permit to others, and if writers has a place, whose
-- waiter is not in the queue. The mode is that of the lock before.
local function notify(lock, queue, timeouts, writers, channel, mode)
	local free = math.max(1, (tonumber(mode) or 1) - math.max(0, redis.call('hlen', lock) - 1))
	local first_kind = nil
	local behind = first_place(queue, timeouts, math.floor(clock() / 1000), function(id)
		local kind = kind_of(id)
		first_kind = first_kind or kind
		if kind ~= first_kind or free == 0 then
			return true
		end
		publish(channel .. ':' .. id)
		if kind == 'p' then
			free = free - 1
		elseif kind == '' then
			free = 0
		end
		return false
	end)
	if not behind and free > 0 or redis.call('exists', writers) == 1 then
		publish(channel)
	end
end

-- notify_of_java wakes all waiters if only readers of Java are left. Java publishes on a channel of
-- its own, to which a waiter subscribes when a holder of Java has refused it.
local function notify_of_java(lock, channel)
	for _, id in ipairs(redis.call('hkeys', lock)) do
		if is_own(id) and redis.call('exists', share_key(lock, id, 1)) == 1 then
			return
		end
	end
	publish(channel)
end
