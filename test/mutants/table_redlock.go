package main

// Mutants of Redlock.
func init() {
	for _, m := range redlockMutants {
		add(m)
	}
}

var redlockMutants = []mutant{
	{
		rule: "a release that a member did not answer is repeated",
		file: "redislock/redlock/release.go",
		old: `			if !isAnswer(err) {
				m.releaseLater`,
		new: `			if err == nil {
				m.releaseLater`,
		test: "redislock/redlock TestReleaseIsRepeatedUntilMemberAnswers",
	},
	{
		rule: "a member that is down is called now and then",
		file: "redislock/redlock/release.go",
		old:  `for pause.Wait(m.s.closing) == nil {`,
		new:  `for ; backoff.Sleep(m.s.closing, minReleasePause) == nil; pause.Reset() {`,
		test: "redislock/redlock TestDeadMemberIsNotFlooded",
	},
	{
		rule: "what has expired is not released again",
		file: "redislock/redlock/release.go",
		old:  `now.After(m.missed[0].until)`,
		new:  `now.Before(time.Time{})`,
		test: "redislock/redlock TestDeadMemberIsNotFlooded",
	},
	{
		rule: "Close counts the locks that contenders have to wait for",
		file: "redislock/redlock/release.go",
		old:  `if len(s.members)-mayHold.len() < s.majority {`,
		new:  `if mayHold.len() > len(s.members) {`,
		test: "redislock/redlock TestCloseReportsUnreleasedLocks",
	},
	{
		rule: "Close repeats releases for the last time",
		file: "redislock/redlock/release.go",
		old:  `all.Go(func() { m.repeat(ctx, ctx, func() {}) })`,
		new:  `all.Go(func() { m.repeat(ctx, s.closing, func() {}) })`,
		test: "redislock/redlock TestCloseReportsUnreleasedLocks",
	},
	{
		rule: "any two majorities have a member in common",
		file: "redislock/redlock/redlock.go",
		old:  `majority:     len(names)/2 + 1,`,
		new:  `majority:     len(names) / 2,`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "the drift of the clocks is taken off the TTL",
		file: "redislock/redlock/acquire.go",
		old:  `return ttl/100 + 2*time.Millisecond`,
		new:  `return 0 * ttl`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "members whose answer got lost are released",
		file: "redislock/redlock/acquire.go",
		old:  `mayHold := allMembers(len(s.members)) &^ b.refused`,
		new:  `mayHold := b.granted`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "only a lock that a majority holds is repaired",
		file: "redislock/redlock/renew.go",
		old:  `		case renewed.len() >= s.majority:`,
		new:  `		case renewed.len() >= 1:`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "a second attempt of an owner is another acquisition",
		file: "redislock/redlock/acquisition.go",
		old:  `alias:   driver.NewOwner(),`,
		new:  `alias:   req.Owner,`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "refusals that name the same holder count together in any order",
		file: "redislock/redlock/ballot.go",
		old:  `return other.blocks > 0 && sameHolder`,
		new:  `return other.held != nil && sameHolder`,
		test: "redislock/redlock TestBallotCountsHoldersInAnyOrder",
	},
	{
		rule: "a token is given out when a majority has stored it",
		file: "redislock/redlock/ballot.go",
		old:  `func (b *ballot) won() bool { return b.raised.len() >= b.majority }`,
		new:  `func (b *ballot) won() bool { return b.granted.len() >= b.majority }`,
		test: "redislock/redlock TestTokenNeedsMajority",
	},
	{
		rule: "a release does not overtake the acquisition that it is to undo",
		file: "redislock/redlock/acquisition.go",
		old:  `	if at.busy {`,
		new:  `	if at.busy && s == nil {`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "asking again for longer promises no more than before",
		file: "redislock/redlock/acquire.go",
		old:  `grant.TTL = min(grant.TTL, req.TTL-drift(req.TTL))`,
		new:  `grant.TTL = req.TTL - drift(req.TTL)`,
		test: "redislock/redlock TestLongerTTLIsPromisedOnlyIfMembersKeepIt",
	},
	{
		rule: "an attempt that is released between two votes ends",
		file: "redislock/redlock/acquisition.go",
		old:  `if previous != nil && previous.released {`,
		new:  `if previous != nil && a.released {`,
		test: "redislock/redlock TestReleaseBetweenVotesEndsTheAttempt",
	},
	{
		rule: "a member that answers late with a larger token gets that of the vote",
		file: "redislock/redlock/ballot.go",
		old:  "	b.raising.add(i)\n	return 1 << i\n",
		new:  "	if b.answers[i].token > b.token {\n		return 0\n	}\n	b.raising.add(i)\n	return 1 << i\n",
		test: "redislock/redlock TestLateMemberReplacesOneThatDied",
	},
	{
		rule: "a renewal that a member did not answer in time is ErrUnreachable",
		file: "redislock/redlock/member.go",
		old:  `errs[i] = m.timedOut(errs[i])`,
		new:  `_ = m.timedOut(errs[i])`,
		test: "redislock/redlock TestUndecidedMembersMakeOutcomeUnknown",
	},
	{
		rule: "a grant that took longer than it lasts is rejected",
		file: "redislock/redlock/acquire.go",
		old:  `if time.Since(start) >= a.ttl-drift(a.ttl) {`,
		new:  `if time.Since(start) < 0 {`,
		test: "redislock/redlock TestAnswersAfterTTLGrantNothing",
	},
	{
		rule: "the pause after a split vote is longer than a vote",
		file: "redislock/redlock/acquire.go",
		old:  `window = min(window, maxSplitTimeouts*s.timeout)`,
		new:  `window = min(window, 200*time.Millisecond)`,
		test: "redislock/redlock TestContendersMakeProgress",
	},
	{
		rule: "what is left of a lost lock is released",
		file: "redislock/redlock/renew.go",
		old:  `notHeld.len() >= s.majority && !ended:`,
		new:  `notHeld.len() >= s.majority && ended:`,
		test: "redislock/redlock TestRulesHold",
	},
	{
		rule: "a member that lost a lock gets it again",
		file: "redislock/redlock/renew.go",
		old:  `		m.repair(incomplete[i])`,
		new:  `		_, _ = i, m`,
		test: "redislock/redlock TestRenewalRepairsRestartedMember",
	},
	{
		rule: "a member whose answer was lost is renewed by the alias alone",
		file: "redislock/redlock/renew.go",
		old:  `grants[k] = a.aliasGrant()`,
		new:  `grants[k] = driver.Grant{Name: a.name, Owner: a.alias, TTL: a.ttl, Token: a.token}`,
		test: "test/stores/redis TestRedlockLateAnswer",
	},
	{
		rule: "a member whose answer was lost gets the token of the majority",
		file: "redislock/redlock/renew.go",
		old:  `if notHeld.has(i) || a.tokenAt(i) != token {`,
		new:  `if notHeld.has(i) || token == 0 {`,
		test: "test/stores/redis TestRedlockLateAnswer",
	},
	{
		rule: "a member that answers as the vote ends gets the token of the majority",
		file: "redislock/redlock/acquire.go",
		old:  "r.giveToken(b.pending, b.token) // the",
		new:  "r.giveToken(0, b.token) // the",
		test: "redislock/redlock TestLateMemberGetsTheToken",
	},
	{
		rule: "a member that lost a lock gets it again with its token",
		file: "redislock/redlock/renew.go",
		old:  `err == nil && drawn != token {`,
		new:  `err == nil && drawn < token {`,
		test: "test/stores/redis TestRedlockFaults/a_member_comes_back_empty_and_a_renewal_restores_the_lock",
	},
	{
		rule: "the token of a member that is asked again is unknown until it answers",
		file: "redislock/redlock/renew.go",
		old:  "	a.members[m.index].token = 0 // unknown until the member answers\n",
		new:  "",
		test: "redislock/redlock TestTokenOfAnUnansweredRepair",
	},
}
