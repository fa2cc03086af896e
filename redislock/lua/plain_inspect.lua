-- KEYS lock, counter. Returns {mark, remaining, token, waiters} of a string
-- that can be a lock, otherwise false. The mark is empty if another program's: it
-- is that program's secret.
if redis.call('strlen', KEYS[1]) > 65536 then
	return false
end
local mark = redis.call('get', KEYS[1])
if not mark then
	return false
end
local token = token_of(mark)
if not token then
	if redis.call('exists', KEYS[2]) == 0 then
		return false
	end
	token, mark = stranger_id(mark), ''
end
return {mark, redis.call('pttl', KEYS[1]), token, 0}
