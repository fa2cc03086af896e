-- KEYS lock, counter. ARGV ttl, owner, floor, holder.
-- Returns the token, or {mark, remaining} of who has the lock.
--
-- It is lean because the server runs one script at a time: the client's estimate
-- of the server's clock is the floor, and SET GET both writes the counter and
-- returns what was there.
local lock, counter, token = KEYS[1], KEYS[2], ARGV[3]
local left = redis.call('pttl', lock)
if left ~= -2 then
	local mark = redis.call('hkeys', lock)[1]
	if string.sub(mark, 1, #ARGV[2] + 1) == ARGV[2] .. ':' then
		redis.call('pexpire', lock, ARGV[1])
		return string.match(mark, ':(%d+):')
	end
	return {mark, left}
end
local last = tonumber(redis.call('set', counter, token, 'GET') or 0) or 0
if last >= tonumber(token) then
	token = string.format('%.0f', last + 1)
	redis.call('set', counter, token)
end
redis.call('hset', lock, ARGV[2] .. ':' .. token .. ':' .. ARGV[4], 1)
redis.call('pexpire', lock, ARGV[1])
return token
