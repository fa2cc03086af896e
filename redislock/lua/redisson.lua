-- Redisson's protocol. A lock is a hash that expires, as Java's RReadWriteLock writes it:
--   exclusive  {mode: 'write', OWNER:TOKEN:HOLDER: 1}
--   shared     {mode: 'read', OWNER: 1, OWNER: 1, ...}
--   permits    {mode: LIMIT, OWNER: 1, OWNER: 1, ...}
--   mutex      {HOLDER VALUE: COUNT}, an RLock of Java
-- The field of a share or a permit is its ID. It also has a key, {LOCK}:ID:rwlock_timeout:1, which
-- contains TOKEN:HOLDER and expires with it. Java has UUID:THREAD in the place of OWNER, the
-- re-entry count in the place of 1, and one such key for each re-entry. The counter of tokens is a
-- plain number, so that INCR works on it.

-- value_of returns the holder value of the exclusive holder, or false.
local function value_of(lock)
	for _, field in ipairs(redis.call('hkeys', lock)) do
		if field ~= 'mode' then
			return field
		end
	end
	return false
end

-- mode_of returns 'write', 'read', a limit, or false if there is no lock. Other data counts as held
-- exclusively. So does a hash that does not expire, whatever its mode says: every lock expires.
local function mode_of(lock)
	local mode = redis.call('hget', lock, 'mode')
	if mode and (mode == 'read' or tonumber(mode)) and redis.call('pttl', lock) >= 0 then
		return mode
	end
	return (mode or redis.call('exists', lock) == 1) and 'write'
end

-- share_key returns the key that expires with a share. The count is above 1 only in other programs.
local function share_key(lock, id, count)
	if not string.find(lock, '{', 1, true) then
		lock = '{' .. lock .. '}'
	end
	return lock .. ':' .. id .. ':rwlock_timeout:' .. count
end

-- has_queue returns 1 if a waiter may have a place in the queue of fair waiters, otherwise 0.
local function has_queue(lock)
	if not string.find(lock, '{', 1, true) then
		lock = '{' .. lock .. '}'
	end
	return redis.call('exists', 'redisson_lock_queue:' .. lock)
end

-- is_own reports whether dlock wrote the ID of a share.
local function is_own(id)
	return #id == 32 and not string.find(id, '%X')
end

-- is_share reports whether dlock or Redisson can have written the ID of a share. Redisson lets its
-- callers choose the number of the thread, which may be negative.
local function is_share(id)
	return is_own(id) or string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') ~= nil
end

-- all_shares returns {ID, remaining} of each field but the mode. The remaining time is -2 if the
-- share has expired, and for fields that neither dlock nor Redisson can have written.
local function all_shares(lock)
	local fields, shares = redis.call('hgetall', lock), {}
	for i = 1, #fields, 2 do
		local id, left = fields[i], -2
		for count = 1, is_share(id) and tonumber(fields[i + 1]) or 0 do
			left = math.max(left, redis.call('pttl', share_key(lock, id, count)))
		end
		if id ~= 'mode' then
			shares[#shares + 1] = {id, left}
		end
	end
	return shares
end

-- live_shares returns {ID, remaining} of each share. It removes those that have expired, and with
-- the last of them the lock. Fields that neither dlock nor Redisson can have written stay.
local function live_shares(lock)
	local live = {}
	for _, share in ipairs(all_shares(lock)) do
		if share[2] == -2 and is_share(share[1]) then
			redis.call('hdel', lock, share[1])
		else
			live[#live + 1] = share
		end
	end
	if #live == 0 then
		redis.call('del', lock)
	end
	return live
end

-- share_value returns the holder value of a share: the ID if another program wrote it.
local function share_value(lock, id)
	local text = is_own(id) and redis.call('get', share_key(lock, id, 1))
	return text and id .. ':' .. text or id
end

-- end_share ends the share with that ID, and reports whether a waiter may be granted the lock now.
-- The lock lasts as long as the longest of the remaining shares.
local function end_share(lock, mode, id)
	local left = 0
	for count = 1, tonumber(redis.call('hget', lock, id)) or 0 do
		local key = share_key(lock, id, count)
		left = math.max(left, redis.call('pttl', key))
		redis.call('del', key)
	end
	redis.call('hdel', lock, id)
	-- If this was the longest share, shorten the lock. The lock got its expiry a moment after the
	-- share, by a later reading of the clock, so it may last up to a second longer.
	if redis.call('pttl', lock) <= left + 1000 then
		left = 0
		for _, share in ipairs(live_shares(lock)) do
			left = math.max(left, share[2])
		end
		if left > 0 then
			redis.call('pexpire', lock, left)
		end
	elseif redis.call('hlen', lock) == 1 then
		redis.call('del', lock)
	end
	return mode ~= 'read' or redis.call('exists', lock) == 0
end

-- write creates a lock. The first PEXPIRE changes nothing: it fails if the user may not set an
-- expiry, before there is a lock that never expires.
local function write(lock, value, ttl)
	redis.call('pexpire', lock, ttl)
	redis.call('hset', lock, 'mode', 'write', value, 1)
	redis.call('pexpire', lock, ttl)
end

-- replace changes the holder value of a lock, and keeps its expiry.
local function replace(lock, old, value)
	redis.call('hset', lock, value, 1)
	redis.call('hdel', lock, old)
end

-- is_java_rw returns 1 if a field is that of a holder of Java's RReadWriteLock, otherwise 0. Other
-- exclusive holders have a token, or no mode.
local function is_java_rw(lock, field)
	return token_of(field) == nil and not is_own(field) and redis.call('hexists', lock, 'mode') or 0
end

-- holder_of returns the holder value and the mode of a holder that excludes exclusive ones, and
-- whether Java's RReadWriteLock has holders. Without a holder it returns false.
local function holder_of(lock)
	local mode = mode_of(lock)
	if not mode or mode == 'write' then
		local value = mode and (value_of(lock) or '')
		return value, mode, value and is_java_rw(lock, value)
	end
	local live, java_rw = live_shares(lock), 0
	for _, share in ipairs(live) do
		java_rw = math.max(java_rw, is_java_rw(lock, share[1]))
	end
	return live[1] and share_value(lock, live[1][1]), mode, java_rw
end

-- renew starts the TTL of a holder with that prefix of the holder value again, and reports whether
-- there is one.
local function renew(lock, prefix, ttl)
	local mode = mode_of(lock)
	if not mode or mode == 'write' then
		local value = mode and value_of(lock)
		return value and starts_with(value, prefix) and prolong(lock, ttl)
	end
	local owner = string.match(prefix, '^%x+')
	return redis.call('hexists', lock, owner) == 1 and starts_with(share_value(lock, owner), prefix)
		and prolong(share_key(lock, owner, 1), ttl) and prolong(lock, ttl)
end

local function read_counter(counter)
	return tonumber(redis.call('get', counter)) or 0
end

-- write_counter returns the token that the counter has then.
local function write_counter(counter, token)
	redis.call('set', counter, digits(token))
	return digits(token)
end
