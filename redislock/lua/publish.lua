-- publish returns how many clients of this server listen. It ignores errors: a user without the
-- right to publish can lock, and waiters poll.
local function publish(channel, message)
	return redis.pcall('publish', channel, message or '0')
end

-- publish_java_rw wakes all waiters of Java's RReadWriteLock. '0' lets one thread of each process
-- go on, even if it does not sleep yet. '1' wakes all threads that sleep now.
local function publish_java_rw(channel)
	if publish(channel, '0') ~= 0 then
		publish(channel, '1')
	end
end
