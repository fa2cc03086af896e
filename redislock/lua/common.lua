-- What both protocols share. A mark is OWNER:TOKEN:HOLDER.

local function starts_with(text, prefix)
	return string.sub(text, 1, #prefix) == prefix
end

-- The token of a mark, or nil if another program wrote it.
local function token_of(mark)
	local owner, token = string.match(mark, '^(%x+):(%d+):{')
	if owner and #owner == 32 then
		return token
	end
end

local function digits(number)
	return string.format('%.0f', number)
end

-- What stands for the token of a holder that another program wrote: a number that
-- no token is, and that no other such holder has.
local function stranger_id(mark)
	return digits(4503599627370496 + tonumber(string.sub(redis.sha1hex(mark), 1, 12), 16))
end

-- The server's clock in microseconds.
local function clock()
	local now = redis.call('time')
	return now[1] * 1000000 + now[2]
end

-- draw returns the next token, which is larger than the last and at least floor.
local function draw(counter, floor)
	local token = math.max(last_token(counter) + 1, floor)
	if token >= 9007199254740992 then
		error('the counter of tokens is too large: ' .. counter)
	end
	keep_token(counter, digits(token))
	return digits(token)
end
