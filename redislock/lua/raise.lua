-- KEYS lock, counter. ARGV prefix of the mark, owner, token.
-- Raises the token of a lock that is held with such a mark, and the counter, to
-- at least that. Returns the lock's token, or false if it is not held.
local mark = mark_of(KEYS[1])
if not mark or not starts_with(mark, ARGV[1]) then
	return false
end
local token = token_of(mark)
if tonumber(token) >= tonumber(ARGV[3]) then
	return token
end
local ttl = math.max(1, redis.call('pttl', KEYS[1]))
token = ARGV[3]
if last_token(KEYS[2]) < tonumber(token) then
	keep_token(KEYS[2], token)
end
local failure = write(KEYS[1], ARGV[2] .. ':' .. token .. ':' .. string.match(mark, '^%x+:%d+:(.*)$'), ttl)
return failure or token
