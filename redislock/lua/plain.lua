-- The plain protocol keeps a lock as a string, the holder value. The counter of tokens is a score
-- in a sorted set, because ZADD GT raises it without a script. The set's member 'new' tells the
-- acquisition without a script whether there was a counter. The counter is always the last token
-- before a multiple of 64: if the last token of a grant of 64 is larger, the first is, too.

-- value_of returns the holder value, or false.
local function value_of(lock)
	return redis.call('get', lock)
end

local function write(lock, value, ttl)
	redis.call('set', lock, value, 'PX', ttl)
end

-- replace changes the holder value of a lock, and keeps its expiry.
local function replace(lock, old, value)
	redis.call('set', lock, value, 'KEEPTTL')
end

-- holder_of returns the holder value, or false.
local holder_of = value_of

-- has_queue: there are no fair waiters.
local function has_queue() end

-- renew starts the TTL of a lock with that prefix of the holder value again, and reports whether
-- there is one.
local function renew(lock, prefix, ttl)
	local value = value_of(lock)
	return value and starts_with(value, prefix) and prolong(lock, ttl)
end

local function read_counter(counter)
	return tonumber(redis.call('zscore', counter, 't')) or 0
end

-- write_counter returns the token that the counter has then: the last before a multiple of TOKEN_STEP.
local function write_counter(counter, token)
	local last = digits(token + TOKEN_STEP - 1 - token % TOKEN_STEP)
	redis.call('zadd', counter, last, 't', 1, 'new')
	return last
end
