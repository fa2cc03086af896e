-- How Redisson's protocol keeps a lock: a hash with one field, the mark of the
-- holder, whose value is its count. The counter of tokens is a plain number, so
-- that INCR works on it.

-- mark_of returns the mark of the holder, or false.
local function mark_of(lock)
	return redis.call('hkeys', lock)[1] or false
end

-- write returns an error if it may not. A lock without an expiry is not left.
local function write(lock, mark, ttl)
	redis.call('del', lock)
	redis.call('hset', lock, mark, 1)
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
