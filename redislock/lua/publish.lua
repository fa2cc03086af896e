-- A user who may not publish can lock all the same: waiters then come by themselves.
local function publish(channel)
	redis.pcall('publish', channel, '0')
end
