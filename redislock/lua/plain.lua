-- How the plain protocol keeps a lock: a string, the mark of the holder. The
-- counter of tokens is a score in a sorted set, because ZADD GT raises it without a
-- script. The member beside it tells that script-less way whether there was a counter.

-- mark_of returns the mark of the holder, or false.
local function mark_of(lock)
	return redis.call('get', lock)
end

local function write(lock, mark, ttl)
	redis.call('set', lock, mark, 'PX', ttl)
	return nil
end

local function last_token(counter)
	return tonumber(redis.call('zscore', counter, 't')) or 0
end

local function keep_token(counter, token)
	redis.call('zadd', counter, token, 't', 1, 'new')
end
