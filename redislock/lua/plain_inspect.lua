-- KEYS: lock, counter. ARGV: whether the name was asked for. Returns {waiters, mode, holder value,
-- remaining, token} of a string that can be a lock, otherwise false. Another program's string may be
-- anything: without a name asked for it counts if dlock has used the name. Its value is its secret, and
-- is returned empty.
if redis.call('strlen', KEYS[1]) > 65536 then
	return false
end
local value = redis.call('get', KEYS[1])
if not value then
	return false
end
local token = token_of(value)
if not token then
	if ARGV[1] == '0' and redis.call('exists', KEYS[2]) == 0 then
		return false
	end
	token, value = foreign_token(value), ''
end
return {0, '', value, redis.call('pttl', KEYS[1]), token}
