-- publish ignores errors: a user without the right to publish can lock, and waiters poll.
local function publish(channel)
	redis.pcall('publish', channel, '0')
end
