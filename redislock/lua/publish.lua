-- publish ignores errors: a user without the right to publish can lock, and waiters poll. Redisson
-- subscribes to one of two channels of a cluster, depending on its version.
local function publish(channel, message)
	redis.pcall('publish', channel, message or '0')
	redis.pcall('spublish', channel, message or '0') -- CLUSTER
end

-- publish_java_rw wakes all waiters of Java's RReadWriteLock. '0' lets one thread of each process
-- go on, even if it does not sleep yet. '1' wakes all threads that sleep now. How many clients got
-- the first message does not matter: PUBLISH does not count those that subscribe to a replica.
local function publish_java_rw(channel)
	publish(channel, '0')
	publish(channel, '1')
end
