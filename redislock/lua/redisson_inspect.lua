-- KEYS: lock, counter, queue. Returns {waiters, mode}, and then the holder value, what remains of
-- its TTL and the token of each holder. It returns false if the hash cannot be a lock.
local lock = KEYS[1]
local field, mode, length = redis.call('hget', lock, 'mode'), mode_of(lock), redis.call('hlen', lock)
-- A mutex has one field. With more fields, an exclusive lock has the mode 'write'.
if not mode or mode == 'write' and length > 1 and field ~= 'write' then
	return false
end
local infos = {redis.call('llen', KEYS[3]), ''}
local function add(value, left)
	infos[#infos + 1] = value
	infos[#infos + 1] = left
	infos[#infos + 1] = token_of(value) or foreign_token(value)
end
if mode == 'write' then
	add(value_of(lock) or '', redis.call('pttl', lock))
	return infos
end
infos[2] = mode
for _, share in ipairs(all_shares(lock)) do
	if share[2] ~= -2 then
		add(share_value(lock, share[1]), share[2])
	end
end
return infos
