-- KEYS lock, counter, queue. Returns {mark, remaining, last token, waiters} of a
-- hash that can be a lock, otherwise false.
if redis.call('hlen', KEYS[1]) ~= 1 then
	return false
end
local mark = redis.call('hkeys', KEYS[1])[1]
return {mark, redis.call('pttl', KEYS[1]), redis.call('get', KEYS[2]) or '0', redis.call('llen', KEYS[3])}
