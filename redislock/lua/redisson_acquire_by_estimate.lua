-- KEYS: lock, counter. ARGV: ttl, owner, floor of the last token, holder. Returns the last
-- token. If another owner holds the lock, it returns the refusal of redisson_acquire_any_mode.lua,
-- except if the lock has shared holders or permits: then it returns false.
--
-- It is short because the server runs one script at a time: the floor is the client's estimate of
-- the server's clock, and SET GET both writes the counter and returns its previous value.
local lock, counter, token = KEYS[1], KEYS[2], ARGV[3]
local left = redis.call('pttl', lock)
if left ~= -2 then
	local fields = redis.call('hgetall', lock)
	local value = fields[1]
	for i = 1, #fields, 2 do
		if fields[i] ~= 'mode' then
			value = fields[i]
		elseif fields[i + 1] ~= 'write' then
			return false
		end
	end
	if string.sub(value, 1, #ARGV[2] + 1) == ARGV[2] .. ':' then
		if left <= tonumber(ARGV[1]) then -- as prolong does
			redis.call('pexpire', lock, ARGV[1])
		end
		return string.match(value, ':(%d+):')
	end
	-- As is_java_rw: there is a mode, and dlock did not write the holder value. Then as has_queue.
	local java_rw = #fields > 2 and not string.find(value, '{', 1, true) and 1 or 0
	local tagged = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
	return {value, left, 1, 'write', java_rw, redis.call('exists', 'redisson_lock_queue:' .. tagged)}
end
local before = redis.call('set', counter, token, 'GET')
local next = (tonumber(before or 0) or 0) + TOKEN_STEP
if not before then -- the counter is new or was lost: only the clock tells what the last token was
	local now = redis.call('time')
	token = string.format('%.0f', math.max(tonumber(token), now[1] * 1000000 + now[2] + TOKEN_STEP - 1))
	redis.call('set', counter, token)
elseif next > tonumber(token) then
	if next >= 9007199254740992 then
		redis.call('set', counter, before)
		error('the counter of tokens is too large: ' .. counter)
	end
	token = string.format('%.0f', next)
	redis.call('set', counter, token)
end
redis.call('hset', lock, 'mode', 'write', ARGV[2] .. ':' .. token .. ':' .. ARGV[4], 1)
local expires = redis.pcall('pexpire', lock, ARGV[1])
if type(expires) == 'table' then -- without an expiry there must be no lock
	redis.call('del', lock)
	return expires
end
return token
