-- KEYS lock, counter. Returns {mark, remaining, last token, waiters} of a string
-- that can be a lock, otherwise false. The mark is empty if another program's: it
-- is that program's secret.
if redis.call('strlen', KEYS[1]) > 65536 then
	return false
end
local mark = redis.call('get', KEYS[1])
if not mark then
	return false
end
local last = redis.call('zscore', KEYS[2], 't')
if not string.match(mark, '^' .. string.rep('%x', 32) .. ':%d+:{') then
	if not last then
		return false
	end
	mark = ''
end
return {mark, redis.call('pttl', KEYS[1]), last or '0', 0}
