-- Redisson's protocol keeps a lock as a hash. Its only field is the holder value, and the field
-- holds the re-entry count. The counter of tokens is a plain number, so that INCR works on it.

-- value_of returns the holder value, or false.
local function value_of(lock)
	return redis.call('hkeys', lock)[1] or false
end

-- write returns the error if the expiry cannot be set. Then it leaves no lock behind.
local function write(lock, value, ttl)
	redis.call('del', lock)
	redis.call('hset', lock, value, 1)
	local expires = redis.pcall('pexpire', lock, ttl)
	if type(expires) == 'table' then
		redis.call('del', lock)
		return expires
	end
end

local function last_token(counter)
	return tonumber(redis.call('get', counter)) or 0
end

local function keep_token(counter, token)
	redis.call('set', counter, token)
end
