-- KEYS lock, counter. ARGV owner, prefix of the mark, floor.
-- Draws a new token for a lock that is held with such a mark, and returns it, or
-- false if it is not.
local mark = mark_of(KEYS[1])
if not mark or not starts_with(mark, ARGV[2]) then
	return false
end
local ttl = math.max(1, redis.call('pttl', KEYS[1]))
local token = draw(KEYS[2], tonumber(ARGV[3]))
write(KEYS[1], ARGV[1] .. ':' .. token .. ':' .. string.match(mark, '^%x+:%d+:(.*)$'), ttl)
return token
