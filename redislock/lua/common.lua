-- What both protocols share. A mark is OWNER:TOKEN:HOLDER.

local function starts_with(text, prefix)
	return string.sub(text, 1, #prefix) == prefix
end

-- The token of a mark, or nil if another program wrote it.
local function token_of(mark)
	return string.match(mark, '^%x+:(%d+):')
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
	local token = digits(math.max(last_token(counter) + 1, floor))
	keep_token(counter, token)
	return token
end
