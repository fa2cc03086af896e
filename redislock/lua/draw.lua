-- draw_tokens draws the tokens of a grant, which are TOKEN_STEP in a row, and returns the last of them.
-- All are larger than the tokens before, and at least floor.
local function draw_tokens(counter, floor)
	local token = math.max(read_counter(counter) + 1, floor) + TOKEN_STEP - 1
	if token >= 9007199254740992 then
		error('the counter of tokens is too large: ' .. counter)
	end
	return write_counter(counter, token)
end
