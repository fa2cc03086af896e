-- KEYS lock, counter. ARGV prefix of the mark of who has it, floor, ttl, owner, holder.
-- Makes owner the holder in the place of another, as if the lock had been free.
-- Returns {clock, token}, or false if it was not held with such a mark.
local mark = mark_of(KEYS[1])
if not mark or not starts_with(mark, ARGV[1]) then
	return false
end
local now = clock()
local token = draw(KEYS[2], math.max(tonumber(ARGV[2]), now))
return write(KEYS[1], ARGV[4] .. ':' .. token .. ':' .. ARGV[5], ARGV[3]) or {digits(now), token}
