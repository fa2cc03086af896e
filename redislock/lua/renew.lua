-- KEYS: the locks. If a cluster gets the script again for a share, the key of the share follows:
-- see renewMoving. ARGV: ttl and prefix of the holder value of each lock. Returns the positions of
-- the locks that are not held with their prefix.

-- is_wrong_type reports whether a call failed because the key holds something else.
local function is_wrong_type(failure)
	local text = type(failure) == 'table' and failure.err or failure
	return string.find(tostring(text), 'WRONGTYPE', 1, true) ~= nil
end

local gone, failed = {}, nil
for i = 1, #ARGV / 2 do
	local ok, renewed = pcall(renew, KEYS[i], ARGV[2 * i], ARGV[2 * i - 1])
	if not ok and not is_wrong_type(renewed) then
		failed = i -- the server refuses to write, for example: the lock may be held all the same
	elseif not ok or not renewed then
		gone[#gone + 1] = i
	end
end
if failed then
	renew(KEYS[failed], ARGV[2 * failed], ARGV[2 * failed - 1]) -- fails again, and the caller gets the error as it is
end
return gone
