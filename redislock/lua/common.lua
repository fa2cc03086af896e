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

-- foreign_token returns a number in the place of the token of another program's holder. It differs
-- between holders, and tokens that are made of the clock are smaller.
local function foreign_token(value)
	return digits(4503599627370496 + tonumber(string.sub(redis.sha1hex(value), 1, 12), 16))
end

-- has_token reports whether a holder has that token: one of the TOKEN_STEP tokens of which its holder
-- value has the last. Another program's holder has one number.
local function has_token(value, token)
	local last = token_of(value)
	if not last then
		return foreign_token(value) == token
	end
	local before_last = tonumber(last) - tonumber(token)
	return before_last >= 0 and before_last < TOKEN_STEP
end

-- clock returns the server's clock in microseconds.
local function clock()
	local now = redis.call('time')
	return now[1] * 1000000 + now[2]
end

-- prolong starts the TTL of a key again, and returns true. It never shortens the TTL.
local function prolong(key, ttl)
	if redis.call('pttl', key) <= tonumber(ttl) then -- also if it is the same: a write is what replicas acknowledge
		redis.call('pexpire', key, ttl)
	end
	return true
end
