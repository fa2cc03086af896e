-- The queue of Redisson's fair lock: a list of those who wait, and a sorted set
-- with the millisecond at which each of them counts as gone. Those of dlock are
-- known by their length.

local FOREIGN_WAIT = 300000 -- what Redisson takes off everybody's time when one of its own is served
local OWN_ID = 32

-- first_in returns who is at the head, after removing those who are gone.
local function first_in(queue, timeouts, now)
	while true do
		local head = redis.call('lindex', queue, 0)
		if not head then
			return false
		end
		local due = redis.call('zscore', timeouts, head)
		if due and tonumber(due) > now then
			return head
		end
		redis.call('lpop', queue)
		redis.call('zrem', timeouts, head)
	end
end
