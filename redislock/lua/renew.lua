-- KEYS lock of each. ARGV ttl, prefix of the mark of each.
-- Returns the positions of those that are not held with such a mark.
local gone = {}
for i = 1, #KEYS do
	local ok, mark = pcall(mark_of, KEYS[i]) -- a key that is no lock any more is not this one's
	if ok and mark and starts_with(mark, ARGV[2 * i]) then
		if redis.call('pttl', KEYS[i]) < tonumber(ARGV[2 * i - 1]) then -- a renewal never shortens
			redis.call('pexpire', KEYS[i], ARGV[2 * i - 1])
		end
	else
		gone[#gone + 1] = i
	end
end
return gone
