-- Redisson listens to the one or to the other, depending on its version.
local function publish(channel)
	redis.pcall('publish', channel, '0')
	redis.pcall('spublish', channel, '0')
end
