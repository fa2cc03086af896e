-- KEYS: the locks. ARGV: ttl and prefix of the holder value of each.
-- Returns the positions of the locks that are not held with their prefix.
local gone = {}
for i = 1, #KEYS do
	local ok, value = pcall(value_of, KEYS[i]) -- fails if the key is not a lock any more
	if ok and value and starts_with(value, ARGV[2 * i]) then
		prolong(KEYS[i], ARGV[2 * i - 1])
	else
		gone[#gone + 1] = i
	end
end
return gone
