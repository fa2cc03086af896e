-- KEYS: lock and counter of each name. In a cluster the guard follows: see guardOf.
-- ARGV: floor, unconfirmed; then ttl, owner, holder of each.
-- Returns {clock, last token of each}. If another owner holds one of the locks, it acquires none
-- and returns the refusal of redisson_acquire_any_mode.lua for the first such lock.
--
-- A lock that its owner holds with the unconfirmed token gets a new token. Everything that can
-- fail is done before the first lock is written.
local now = clock()
local floor = math.max(tonumber(ARGV[1]), now)
local values, tokens = {}, {}
local names = math.floor(#KEYS / 2)
for i = 1, names do
	local value, mode, java_rw = holder_of(KEYS[2 * i - 1])
	if value and not starts_with(value, ARGV[3 * i + 1] .. ':') then
		return {value, redis.call('pttl', KEYS[2 * i - 1]), i, mode, java_rw, has_queue(KEYS[2 * i - 1])}
	end
	values[i] = value
end
for i = 1, names do
	tokens[i] = values[i] and token_of(values[i])
	if not tokens[i] or tokens[i] == ARGV[2] then
		tokens[i] = draw_tokens(KEYS[2 * i], floor)
	end
end
for i = 1, names do
	if values[i] then
		renew(KEYS[2 * i - 1], ARGV[3 * i + 1] .. ':', ARGV[3 * i])
	end
end
for i = 1, names do
	local lock, value = KEYS[2 * i - 1], ARGV[3 * i + 1] .. ':' .. tokens[i] .. ':' .. ARGV[3 * i + 2]
	if not values[i] then
		write(lock, value, ARGV[3 * i])
	elseif token_of(values[i]) ~= tokens[i] then
		replace(lock, values[i], value)
	end
end
table.insert(tokens, 1, digits(now))
return tokens
