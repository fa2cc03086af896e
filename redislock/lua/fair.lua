-- The queue of Redisson's fair lock: a list of waiters, and a sorted set with the millisecond at
-- which the place of each waiter expires. An ID of dlock is known by its length.

local FOREIGN_WAIT = 300000 -- what Redisson subtracts from all expiries when one of its waiters is served
local OWN_ID = 32

-- head_of removes expired places, and returns the first waiter or false.
local function head_of(queue, timeouts, now)
	while true do
		local head = redis.call('lindex', queue, 0)
		if not head then
			return false
		end
		local expiry = redis.call('zscore', timeouts, head)
		if expiry and tonumber(expiry) > now then
			return head
		end
		redis.call('lpop', queue)
		redis.call('zrem', timeouts, head)
	end
end
