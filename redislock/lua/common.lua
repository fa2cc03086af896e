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
