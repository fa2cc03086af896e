-- Functions for both protocols. A holder value is OWNER:TOKEN:HOLDER, with the last token of the
-- grant.

local function starts_with(text, prefix)
	return string.sub(text, 1, #prefix) == prefix
end

-- token_of returns the token in a holder value, or nil if another program wrote it.
local function token_of(value)
	local owner, token = string.match(value, '^(%x+):(%d+):{')
	if owner and #owner == 32 then
		return token
	end
end

local function digits(number)
	return string.format('%.0f', number)
end

-- foreign_token returns a number in the place of the token of another program's holder. No token
-- has that number, and it differs between holders.
local function foreign_token(value)
	return digits(4503599627370496 + tonumber(string.sub(redis.sha1hex(value), 1, 12), 16))
end

-- clock returns the server's clock in microseconds.
local function clock()
	local now = redis.call('time')
	return now[1] * 1000000 + now[2]
end

-- prolong starts the TTL of a lock again. It never shortens a lock.
local function prolong(lock, ttl)
	if redis.call('pttl', lock) < tonumber(ttl) then
		redis.call('pexpire', lock, ttl)
	end
end

-- draw returns the last of the next span tokens. All are larger than the tokens before, and at
-- least floor.
local function draw(counter, floor, span)
	local token = math.max(last_token(counter) + 1, floor) + (span - 1)
	if token >= 9007199254740992 then
		error('the counter of tokens is too large: ' .. counter)
	end
	keep_token(counter, digits(token))
	return digits(token)
end
