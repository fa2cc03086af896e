-- publish notifies both ways: Redisson subscribes to one of them, depending on its version.
local function publish(channel)
	redis.pcall('publish', channel, '0')
	redis.pcall('spublish', channel, '0')
end
