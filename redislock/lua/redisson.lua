-- How Redisson's protocol keeps a lock: a hash with one field, the mark of the
-- holder, whose value is its count. The counter of tokens is a plain number, so
-- that INCR works on it.

-- mark_of returns the mark of the holder, or false.
local function mark_of(lock)
	return redis.call('hkeys', lock)[1] or false
end

local function write(lock, mark, ttl)
	redis.call('del', lock)
	redis.call('hset', lock, mark, 1)
	redis.call('pexpire', lock, ttl)
end

local function last_token(counter)
	return tonumber(redis.call('get', counter)) or 0
end

local function keep_token(counter, token)
	redis.call('set', counter, token)
end
