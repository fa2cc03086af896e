-- draw_tokens draws span tokens, and returns the last of them. All are larger than the tokens
-- before, and at least floor.
local function draw_tokens(counter, floor, span)
	local token = math.max(read_counter(counter) + 1, floor) + (span - 1)
	if token >= 9007199254740992 then
		error('the counter of tokens is too large: ' .. counter)
	end
	write_counter(counter, digits(token))
	return digits(token)
end
