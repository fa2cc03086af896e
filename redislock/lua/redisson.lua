-- Redisson's protocol keeps a lock as a hash. Its only field is the holder value, and the field
-- holds the re-entry count. The counter of tokens is a plain number, so that INCR works on it.

-- value_of returns the holder value, or false.
local function value_of(lock)
	return redis.call('hkeys', lock)[1] or false
end

-- write creates a lock. The first PEXPIRE changes nothing: it fails if the user may not set an
-- expiry, before there is a lock that never expires.
local function write(lock, value, ttl)
	redis.call('pexpire', lock, ttl)
	redis.call('hset', lock, value, 1)
	redis.call('pexpire', lock, ttl)
end

-- replace changes the holder value of a lock, and keeps its expiry.
local function replace(lock, old, value)
	redis.call('hset', lock, value, 1)
	redis.call('hdel', lock, old)
end

local function last_token(counter)
	return tonumber(redis.call('get', counter)) or 0
end

local function keep_token(counter, token)
	redis.call('set', counter, token)
end
