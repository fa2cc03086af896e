-- KEYS: lock, counter. ARGV: prefix of the holder value, owner, the last of the new tokens, and that of
-- the grant, which is lowered if need be.
-- Raises the lock's token and the counter to at least the token. Returns the lock's last token, or
-- false if the lock is not held with that prefix.
local value = value_of(KEYS[1])
if not value or not starts_with(value, ARGV[1]) then
	return false
end
local token = token_of(value)
if token == ARGV[3] or tonumber(token) > tonumber(ARGV[3]) and token ~= ARGV[4] then
	return token
end
token = ARGV[3]
if read_counter(KEYS[2]) < tonumber(token) then
	write_counter(KEYS[2], tonumber(token))
end
replace(KEYS[1], value, ARGV[2] .. ':' .. token .. ':' .. string.match(value, '^%x+:%d+:(.*)$'))
return token
