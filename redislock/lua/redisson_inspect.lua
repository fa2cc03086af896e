-- KEYS lock, counter, queue. Returns {mark, remaining, token, waiters} of a hash
-- that can be a lock, otherwise false.
if redis.call('hlen', KEYS[1]) ~= 1 then
	return false
end
local mark = redis.call('hkeys', KEYS[1])[1]
return {mark, redis.call('pttl', KEYS[1]), token_of(mark) or stranger_id(mark), redis.call('llen', KEYS[3])}
