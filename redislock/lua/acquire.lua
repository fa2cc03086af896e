-- KEYS lock, counter of each name. ARGV floor, doubtful, then ttl, owner, holder of each.
-- Returns {clock, token of each}, or {mark, remaining, position} of the first
-- lock that somebody else has: then none was taken.
--
-- A lock that its owner has with the doubtful token gets another one. All that
-- can fail is done before the first lock is written, or undone.
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
	tokens[i] = marks[i] and token_of(marks[i])
	if not tokens[i] or tokens[i] == ARGV[2] then
		tokens[i] = draw(KEYS[2 * i], floor)
	end
end
for i = 1, #KEYS / 2 do
	local ttl = ARGV[3 * i]
	if marks[i] then -- asking again never shortens
		ttl = math.max(tonumber(ttl), redis.call('pttl', KEYS[2 * i - 1]))
	end
	local failure = write(KEYS[2 * i - 1], ARGV[3 * i + 1] .. ':' .. tokens[i] .. ':' .. ARGV[3 * i + 2], ttl)
	if failure then
		for j = 1, i - 1 do
			redis.call('del', KEYS[2 * j - 1])
		end
		return failure
	end
end
table.insert(tokens, 1, digits(now))
return tokens
