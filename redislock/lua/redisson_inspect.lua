-- KEYS: lock, counter, queue. Returns {holder value, remaining, token, waiters} of a hash that can
-- be a lock, otherwise false.
if redis.call('hlen', KEYS[1]) ~= 1 then
	return false
end
local value = redis.call('hkeys', KEYS[1])[1]
return {value, redis.call('pttl', KEYS[1]), token_of(value) or foreign_token(value), redis.call('llen', KEYS[3])}
