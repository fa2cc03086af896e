-- publish notifies both ways: Redisson subscribes to one of them, depending on its version.
local function publish(channel, message)
	redis.pcall('publish', channel, message or '0')
	redis.pcall('spublish', channel, message or '0')
end

-- publish_java_rw wakes all waiters of Java's RReadWriteLock. '0' lets one thread of each process
-- go on, even if it does not sleep yet. '1' wakes all threads that sleep now.
local function publish_java_rw(channel)
	publish(channel, '0')
	publish(channel, '1')
end
