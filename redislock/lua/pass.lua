-- KEYS: lock, counter. ARGV: prefix of the present holder value, floor, ttl, owner, holder.
-- Makes owner the holder as if the lock had been free. Returns {clock, token}, or false if the
-- lock is not held with that prefix.
local value = value_of(KEYS[1])
if not value or not starts_with(value, ARGV[1]) then
	return false
end
local now = clock()
local token = draw(KEYS[2], math.max(tonumber(ARGV[2]), now))
redis.call('pexpire', KEYS[1], ARGV[3]) -- first, because the user may lack the right
replace(KEYS[1], value, ARGV[4] .. ':' .. token .. ':' .. ARGV[5])
return {digits(now), token}
