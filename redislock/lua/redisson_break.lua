-- KEYS: lock, queue, timeouts, writers. In a cluster the guard follows: see guardOf.
-- ARGV: token, channel, channel of RReadWriteLock.
-- Ends the hold that has that token, or that of another program's holder with that number. Returns 1 if
-- it did.
local lock = KEYS[1]
local mode = mode_of(lock)
local ended, freed = false, false
local function is_broken(value)
	return value and has_token(value, ARGV[1])
end
if not mode or mode == 'write' then
	if is_broken(value_of(lock)) then
		redis.call('del', lock)
		ended, freed = true, true
	end
else
	for _, share in ipairs(live_shares(lock)) do
		if not ended and is_broken(share_value(lock, share[1])) then
			ended, freed = true, end_share(lock, mode, share[1])
		end
	end
	if ended and not freed then
		notify_of_java(lock, ARGV[2])
	end
end
if freed then
	publish(ARGV[2]) -- for waiters that do not queue
	notify(lock, KEYS[2], KEYS[3], KEYS[4], ARGV[2], mode)
	publish_java_rw(ARGV[3])
end
return ended and 1 or 0
