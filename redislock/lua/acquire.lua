-- KEYS lock, counter of each name. ARGV floor, redraw, then ttl, owner, holder of each.
-- Returns {clock, token of each}, or {mark, remaining, position} of the first
-- lock that somebody else has: then none was taken.
--
-- Whatever can fail is done before the first lock is written.
local now = clock()
local floor = math.max(tonumber(ARGV[1]), now)
local marks, tokens = {}, {}
for i = 1, #KEYS / 2 do
	local mark = mark_of(KEYS[2 * i - 1])
	if mark and not starts_with(mark, ARGV[3 * i + 1] .. ':') then
		return {mark, redis.call('pttl', KEYS[2 * i - 1]), i}
	end
	marks[i] = mark
end
for i = 1, #KEYS / 2 do
	local mark = marks[i]
	if mark and ARGV[2] == '0' then
		tokens[i] = token_of(mark)
	else
		tokens[i] = draw(KEYS[2 * i], floor)
	end
end
for i = 1, #KEYS / 2 do
	write(KEYS[2 * i - 1], ARGV[3 * i + 1] .. ':' .. tokens[i] .. ':' .. ARGV[3 * i + 2], ARGV[3 * i])
end
table.insert(tokens, 1, digits(now))
return tokens
