package main

func init() {
	// Attempts that are carried out late.
	add(mutant{
		rule: "a release waits for the abandoned attempt of its owner",
		file: "redislock/release.go",
		old:  "s.attempts.Settle(ctx, grant)",
		new:  "s.attempts.Settle(ctx, driver.Grant{})",
		test: "test/stores/redis TestReleaseDoesNotOvertakeItsAttempt",
	})
	add(mutant{
		rule: "a call that was sent before its caller left is unsettled",
		file: "redislock/cancel.go",
		old:  "c.become(abandoned)",
		new:  "c.become(notSent)",
		test: "test/stores/redis TestAbandonedTryLockLeavesNoLock",
	})
	add(mutant{
		rule: "an attempt that lost its answer after its caller left is undone",
		file: "redislock/sender.go",
		old:  "c.state, c.answered = ended, !mayBeCarriedOut(c.commands)",
		new:  "c.state, c.answered = ended, true",
		test: "test/stores/redis TestLateAttempt/the_caller_leaves_and_the_connection_breaks/plain/Acquire$",
	})
	add(mutant{
		rule: "an attempt whose connection broke is undone when it is carried out",
		file: "redislock/acquire.go",
		old:  "s.attempts.Unanswered(req.Name, req.Owner)",
		new:  "s.attempts.Leave(req.Name, req.Owner)(true)",
		test: "test/stores/redis TestLateAttempt/^the_connection_breaks/plain/Acquire$",
	})
	add(mutant{
		rule: "an attempt that its caller sent until its deadline is undone when it is carried out",
		file: "redislock/sender.go",
		old:  "notSent: !mayBeCarriedOut(commands)",
		new:  "notSent: true",
		test: "test/stores/redis TestLateAttempt/the_client_keeps_the_deadline/plain/Acquire$",
	})
	add(mutant{
		rule: "an abandoned AcquireAll is waited for under every one of its names",
		file: "redislock/acquire.go",
		old:  "s.settleFailure(cmp.Or(err, errReply), reqs...)",
		new:  "s.settleFailure(err, reqs[0])",
		test: "test/stores/redis TestLateAttempt/^the_connection_breaks/plain/AcquireAll",
	})
	add(mutant{
		rule: "an attempt at a member of a Redlock that was carried out late is undone",
		file: "redislock/acquire.go",
		old:  "s.settleFailure(err, req)",
		new:  "s.settleFailure(err)",
		test: "test/stores/redis TestRedlockLateAttemptLeavesNoLock",
	})
	add(mutant{
		rule: "a member that does not answer gets a release for every attempt",
		file: "redislock/redlock/member.go",
		old:  "return m.callAnyway(ctx, func(ctx context.Context) error { return m.store.Release(",
		new:  "return m.call(ctx, func(ctx context.Context) error { return m.store.Release(",
		test: "redislock/redlock TestEveryAttemptIsReleased",
	})
	add(mutant{
		rule: "a member that failed an attempt gets its release",
		file: "redislock/redlock/member.go",
		old:  "	if err == nil {\n		a.noteToken(m.index, token)\n",
		new:  "	a.locked(func() { a.members[m.index].asked = err == nil })\n	if err == nil {\n		a.noteToken(m.index, token)\n",
		test: "redislock/redlock TestEveryAttemptIsReleased",
	})

	// Dead connections.
	add(mutant{
		rule: "a call has a limit also if the client has no ReadTimeout",
		file: "redislock/sender.go",
		old:  "c.Options().ReadTimeout <= 0 {",
		new:  "c.Options().ReadTimeout < -1 {",
		test: "test/stores/redis TestDeadConnectionsWithoutReadTimeoutAreReplaced",
	})

	// Tokens.
	add(mutant{
		rule: "the token of an attempt whose caller left is unconfirmed",
		file: "redislock/acquire.go",
		old:  "		if !neverSent(err) {\n			s.unconfirmed.add(req.Owner, proposed, req.TTL)\n",
		new:  "		if false {\n			s.unconfirmed.add(req.Owner, proposed, req.TTL)\n",
		test: "test/stores/redis TestTokenRisesAfterAnAbandonedAttempt",
	})
	add(mutant{
		rule: "the token of an attempt whose answer was lost is unconfirmed",
		file: "redislock/acquire.go",
		old:  "	s.unconfirmed.add(req.Owner, proposed, req.TTL)\n	if failed == nil ||",
		new:  "	if failed == nil ||",
		test: "test/stores/redis TestTokenRisesAfterALostAnswer",
	})
	add(mutant{
		rule: "a proposed token counts only if it raised the counter",
		file: "redislock/acquire.go",
		old:  "	case raised && granted:",
		new:  "	case (raised || granted) && granted:",
		test: "test/stores/redis TestTokensRise/plain",
	})
	add(mutant{
		rule: "a token is larger than the last one, also if the counter is ahead of the clock",
		file: "redislock/lua/redisson_acquire_by_estimate.lua",
		old:  "token = string.format('%.0f', next)",
		new:  "token = string.format('%.0f', next - TOKEN_STEP)",
		test: "test/stores/redis TestTokensRise/redisson",
	})
	add(mutant{
		rule: "a drawn token is larger than the last one",
		file: "redislock/lua/draw.lua",
		old:  "math.max(read_counter(counter) + 1, floor)",
		new:  "math.max(read_counter(counter), floor)",
		test: "test/stores/redis TestTokensRise",
	})
	add(mutant{
		rule: "a plain counter is the last token of a step",
		file: "redislock/lua/plain.lua",
		old:  "token + TOKEN_STEP - 1 - token % TOKEN_STEP",
		new:  "token",
		test: "test/stores/redis TestPlainCounterIsTheLastOfAStep",
	})
	add(mutant{
		rule: "with a longer step the first token tells whether the counter was ahead",
		file: "redislock/acquire.go",
		old:  "if s.step > tokenStep {",
		new:  "if false {",
		test: "test/stores/redis TestStepsThatDiffer",
	})
	add(mutant{
		rule: "the first proposed token is a multiple of the step",
		file: "redislock/token.go",
		old:  "first := (floor + d.step - 1) / d.step * d.step",
		new:  "first := floor",
		test: "redislock TestDrawnTokensAreNotProposedAgain",
	})
	add(mutant{
		rule: "all tokens in Redisson's protocol are above all before",
		file: "redislock/lua/redisson_acquire_by_estimate.lua",
		old:  `elseif next > tonumber(token) then`,
		new:  `elseif next - TOKEN_STEP >= tonumber(token) then`,
		test: "test/stores/redis TestConformance/single/redisson/token-order",
	})
	add(mutant{
		rule: "a drawn token is kept for the next one",
		file: "redislock/lua/draw.lua",
		old:  "return write_counter(counter, token)",
		new:  "return digits(token)",
		test: "test/stores/redis TestTokensRise",
	})
	add(mutant{
		rule: "a call that was overtaken lowers no token (Redis)",
		file: "redislock/lua/plain_raise.lua",
		old:  `tonumber(token) > tonumber(ARGV[3]) and token ~= ARGV[4]`,
		new:  `token == ARGV[4]`,
		test: "test/stores/redis TestRaiseScript",
	})
	add(mutant{
		rule: "later tokens are larger than one that was raised",
		file: "redislock/lua/plain_raise.lua",
		old:  "if read_counter(KEYS[2]) < tonumber(token) then",
		new:  "if false then",
		test: "test/stores/redis TestRaiseScript",
	})
	add(mutant{
		rule: "all tokens of a raised lock are set aside (Redis)",
		file: "redislock/member.go",
		old:  "token+m.step-1, m.lastToken",
		new:  "token, m.lastToken",
		test: "test/stores/redis TestRedlockAgreesOnTokens",
	})

	// Ownership and TTL.
	add(mutant{
		rule: "a release by owner releases no other owner's lock",
		file: "redislock/lua/redisson_release.lua",
		old:  "if value and starts_with(value, prefix) then",
		new:  "if value then",
		test: "test/stores/redis TestLateReleaseReleasesNoOtherHolder",
	})
	add(mutant{
		rule: "a release of a plain lock releases no other owner's",
		file: "redislock/lua/plain_release_exact.lua",
		old:  "if redis.call('get', KEYS[1]) ~= ARGV[1] then",
		new:  "if not redis.call('get', KEYS[1]) then",
		test: "test/stores/redis TestLateReleaseReleasesNoOtherHolder",
	})
	add(mutant{
		rule: "a renewal extends no other owner's lock",
		file: "redislock/lua/redisson.lua",
		old:  "return value and starts_with(value, prefix) and prolong(lock, ttl)",
		new:  "return value and prolong(lock, ttl)",
		test: "test/stores/redis TestLateRenewalChangesNothing",
	})
	add(mutant{
		rule: "a renewal, and asking again by the server's clock or for a fair lock, never shortens a lock",
		file: "redislock/lua/common.lua",
		old:  "if redis.call('pttl', key) <= tonumber(ttl) then",
		new:  "if true then",
		test: "test/stores/redis TestNothingShortensALock",
	})
	add(mutant{
		rule: "asking again never shortens a lock",
		file: "redislock/lua/redisson_acquire_by_estimate.lua",
		old:  "if left <= tonumber(ARGV[1]) then",
		new:  "if true then",
		test: "test/stores/redis TestNothingShortensALock/redisson",
	})
	add(mutant{
		rule: "every lock of Redisson's protocol expires",
		file: "redislock/lua/redisson.lua",
		old:  "	redis.call('hset', lock, 'mode', 'write', value, 1)\n	redis.call('pexpire', lock, ttl)\n",
		new:  "	redis.call('hset', lock, 'mode', 'write', value, 1)\n",
		test: "test/stores/redis TestFailedRepetitionKeepsTheLock",
	})
	add(mutant{
		rule: "a lock is not written if the user may not set its expiry",
		file: "redislock/lua/redisson.lua",
		old:  "	redis.call('pexpire', lock, ttl)\n	redis.call('hset', lock, 'mode', 'write', value, 1)\n",
		new:  "	redis.call('hset', lock, 'mode', 'write', value, 1)\n",
		test: "test/stores/redis TestLockWithoutExpiryIsNeverLeft",
	})
	add(mutant{
		rule: "AcquireAll checks every name before it takes one",
		file: "redislock/lua/acquire_by_clock.lua",
		old:  "if value and not starts_with(value, ARGV[3 * i + 1] .. ':') then",
		new:  "if i == 1 and value and not starts_with(value, ARGV[3 * i + 1] .. ':') then",
		test: "test/stores/redis TestConformance/single/plain/batch-none",
	})

	// Replicas.
	add(mutant{
		rule: "too few replicas refuse a lock",
		file: "redislock/pipeline.go",
		old:  "n < int64(s.replicas)",
		new:  "n < 0",
		test: "test/stores/redis TestMissingReplicasRefuseTheLock",
	})
	add(mutant{
		rule: "a lock that too few replicas acknowledged is left to its owner",
		file: "redislock/acquire.go",
		old:  "		switch {\n		case unsettled && abandoned:",
		new:  "		if errors.Is(err, ErrNotReplicated) {\n			_ = s.undo(context.Background(), req.Name, req.Owner)\n		}\n		switch {\n		case unsettled && abandoned:",
		test: "test/stores/redis TestNotReplicatedLockIsLeftToItsOwner",
	})

	// Wake-ups.
	add(mutant{
		rule: "a release of Redisson's protocol wakes waiters",
		file: "redislock/lua/redisson_release_exact.lua",
		old:  "publish(ARGV[2])\n",
		new:  "",
		test: "test/stores/redis TestConformance/single/redisson/watch",
	})
	add(mutant{
		rule: "readers of Java that subscribe to a replica are woken",
		file: "redislock/lua/publish.lua",
		old:  "	publish(channel, '1')\n",
		new:  "",
		test: "test/stores/redis TestReadersThatSubscribeToAReplicaAreWoken",
	})
	add(mutant{
		rule: "a thread of Java with a negative number has a share",
		file: "redislock/lua/redisson.lua",
		old:  ":%-?%d+$",
		new:  ":%d+$",
		test: "test/stores/redis TestReaderOfJavaWithNegativeThreadCounts",
	})
	add(mutant{
		rule: "a waiter is woken when only readers of Java are left",
		file: "redislock/lua/redisson_release.lua",
		old:  "if not freed then",
		new:  "if false then",
		test: "test/stores/redis TestLateReaderOfJavaWakesAWriter",
	})
	add(mutant{
		rule: "a waiter leaves its queue to Java without an expiry",
		file: "redislock/lua/redisson_queue.lua",
		old:  "if last and string.find",
		new:  "if false and string.find",
		test: "test/stores/redis TestQueueOfJavaDoesNotExpire",
	})

	// Modes.
	add(mutant{
		rule: "Java's readers see an exclusive lock",
		file: "redislock/lua/redisson_acquire_by_estimate.lua",
		old:  "redis.call('hset', lock, 'mode', 'write', ARGV[2]",
		new:  "redis.call('hset', lock, ARGV[2]",
		test: "test/stores/redis TestLocksAreWrittenAsRReadWriteLockDoes",
	})
	add(mutant{
		rule: "shared holders exclude exclusive ones",
		file: "redislock/lua/redisson_acquire_any_mode.lua",
		old:  "elseif mode ~= want or used >= limit then",
		new:  "elseif limit and used >= limit then",
		test: "test/stores/redis TestConformance/single/redisson/shared-together",
	})
	add(mutant{
		rule: "readers do not pass an exclusive waiter",
		file: "redislock/lua/redisson_acquire_any_mode.lua",
		old:  "if writer[1] and tonumber(writer[2]) > now then",
		new:  "if false then",
		test: "test/stores/redis TestConformance/single/redisson/shared-writer",
	})
	add(mutant{
		rule: "the lock of a dead reader lasts no longer than its share",
		file: "redislock/lua/redisson.lua",
		old:  "			redis.call('pexpire', lock, left)\n",
		new:  "",
		test: "test/stores/redis TestLockLastsAsLongAsItsLongestShare",
	})
	add(mutant{
		rule: "a renewal that the server refuses is no loss",
		file: "redislock/lua/renew.lua",
		old:  "if not ok and not is_wrong_type(renewed) then",
		new:  "if false then",
		test: "test/stores/redis TestRefusedRenewalIsNoLoss",
	})
	add(mutant{
		rule: "a share whose key is on another server has not expired",
		file: "redislock/key.go",
		old:  "	return []string{derivedKey(guardPrefix, key)}\n",
		new:  "	return nil\n",
		test: "test/stores/redis TestSharesAreKeptWhileSlotMoves",
	})
	add(mutant{
		rule: "a release notifies waiters outside of the queue",
		file: "redislock/lua/redisson_queue.lua",
		old:  "if not behind and free > 0 or redis.call('exists', writers) == 1 then",
		new:  "if not first_kind then",
		test: "test/stores/redis TestReleaseNotifiesOnlyWaitersThatMayBeGranted",
	})
	add(mutant{
		rule: "other data is no lock",
		file: "redislock/lua/redisson.lua",
		old:  " and redis.call('pttl', lock) >= 0 then",
		new:  " then",
		test: "test/stores/redis TestHashThatIsNoLockIsRefused",
	})
	add(mutant{
		rule: "a lock of another program is found by its name",
		file: "redislock/list.go",
		old:  "[]string{s.keyOf(name)}, true)",
		new:  "[]string{s.keyOf(name)}, false)",
		test: "test/stores/redis TestFindAnotherProgramsLock",
	})
}
