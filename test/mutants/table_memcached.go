package main

// Mutants of memcachelock, quorum and the internal packages.
func init() {
	for _, m := range memcachedMutants {
		add(m)
	}
	for _, m := range quorumMutants {
		add(m)
	}
	for _, m := range internalMutants {
		add(m)
	}
}

var memcachedMutants = []mutant{
	{
		rule: "an attempt whose caller left is recorded",
		file: "memcachelock/pool.go",
		old:  `if leave == nil || c.owed == 0 {`,
		new:  `if leave != nil || c.owed == 0 {`,
		test: "test/stores/memcached TestLateAttempt/delivered_while",
	},
	{
		rule: "a release waits for the attempts of its owner",
		file: "memcachelock/acquire.go",
		old:  `s.attempts.Settle(ctx, grant)`,
		new:  `s.attempts.Settle(ctx, driver.Grant{})`,
		test: "test/stores/memcached TestLateAttempt/delivered_while",
	},
	{
		rule: "an attempt that was never answered is undone later",
		file: "memcachelock/pool.go",
		old:  `ended(err == nil)`,
		new:  `ended(true)`,
		test: "test/stores/memcached TestLateAttempt/delivered_after_Release_returned",
	},
	{
		rule: "a silent connection is left for a new one",
		file: "memcachelock/conn.go",
		old:  `case c.silent > 0 && silence >= c.silent:`,
		new:  `case c.silent > 0 && silence < 0:`,
		test: "test/stores/memcached TestSilentConnections$",
	},
	{
		rule: "connections that were idle while another was silent are not trusted",
		file: "memcachelock/pool.go",
		old:  `if !c.used.Before(since) {`,
		new:  `if c.used.Before(since) {`,
		test: "test/stores/memcached TestSilentConnectionsAreLeftTogether",
	},
	{
		rule: "a release that was asked for twice does not say that the lock was not held",
		file: "memcachelock/acquire.go",
		old:  `if calls > 1 && errors.Is(err, driver.ErrNotHeld) {`,
		new:  `if calls > 2 && errors.Is(err, driver.ErrNotHeld) {`,
		test: "test/stores/memcached TestSilentRelease",
	},
	{
		rule: "waiters are woken when the server is gone",
		file: "memcachelock/watch.go",
		old:  `(err == nil) != reached {`,
		new:  `err == nil && !reached {`,
		test: "test/stores/memcached TestServerGone",
	},
	{
		rule: "a server that is too young to grant is asked all the same",
		file: "memcachelock/acquire.go",
		old:  `return c.tooYoung(&req, left)`,
		new:  `return &driver.HeldError{Name: req.Name, Remaining: left}`,
		test: "test/stores/memcached TestYoungServerGone",
	},
	{
		rule: "a release by the owner alone touches nobody else's lock",
		file: "memcachelock/acquire.go",
		old:  `f == nil || !f.mine(grant.Owner) || grant.Token != 0`,
		new:  `f == nil || grant.Token != 0`,
		test: "test/stores/memcached TestConformance/release",
	},
	{
		rule: "a release with a token touches no other grant",
		file: "memcachelock/acquire.go",
		old:  `grant.Token != 0 && grant.Token != f.token(c.started):`,
		new:  `grant.Token != 0 && f.token(c.started) == 0:`,
		test: "test/stores/memcached TestConformance/release",
	},
	{
		rule: "a renewal extends no other owner's lock",
		file: "memcachelock/renew.go",
		old:  `f == nil || !f.mine(grant.Owner) || f.token(c.started) != grant.Token {`,
		new:  `f == nil {`,
		test: "test/stores/memcached TestNumbersBeginAgain",
	},
	{
		rule: "a late renewal is compared with what is there",
		file: "memcachelock/meta.go",
		old:  `c.writeStore("cas ", key, value, end, cas)`,
		new:  `c.writeStore("set ", key, value, end, 0)`,
		test: "test/stores/memcached TestLateCalls/Renew_of_what_was_found",
	},
	{
		rule: "a late release is compared with what is there",
		file: "memcachelock/meta.go",
		old:  `b = strconv.AppendUint(append(b, " C"...), cas, 10)`,
		new:  `_ = cas`,
		test: "test/stores/memcached TestLateCalls/Release_by_number",
	},
	{
		rule: "the number of an item is not used over a connection that is younger",
		file: "memcachelock/acquire.go",
		old:  `if c.dialed.Before(h.sent) {`,
		new:  `if !c.dialed.IsZero() {`,
		test: "test/stores/memcached TestNumbersBeginAgain",
	},
	{
		rule: "a lock lasts for its TTL although the server's clock is behind",
		file: "memcachelock/clock.go",
		old:  `const behind = 2*time.Second + 500*time.Millisecond`,
		new:  `const behind = 0 * time.Second`,
		test: "memcachelock TestClock",
	},
	{
		rule: "a renewal counts from its answer, so that it never shortens",
		file: "memcachelock/renew.go",
		old:  `c.clock.notBefore(f.left, time.Now(), grant.TTL)`,
		new:  `c.clock.notBefore(f.left, time.Now().Add(-time.Since(c.began)), grant.TTL)`,
		test: "test/stores/memcached TestLateRenewalDoesNotShorten",
	},
	{
		rule: "a renewal for less does not shorten",
		file: "memcachelock/clock.go",
		old:  `return max(k.end(moment, ttl), k.when(moment).Unix()+left)`,
		new:  `return k.end(moment, ttl) + 0*left`,
		test: "test/stores/memcached TestLateRenewalDoesNotShorten",
	},
	{
		rule: "a server that has just started gives no locks for a TTL",
		file: "memcachelock/stats.go",
		old:  `return max(0, delay+boast-c.uptime-time.Since(c.dialed))`,
		new:  `return max(0, boast-c.uptime-time.Since(c.dialed))`,
		test: "test/stores/memcached TestRestartAtOnce/one_holder",
	},
	{
		rule: "tokens rise across a restart",
		file: "memcachelock/mark.go",
		old:  `return started + f.cas`,
		new:  `return f.cas`,
		test: "test/stores/memcached TestRestartAtOnce/tokens",
	},
	{
		rule: "a lock that ends too soon is not granted",
		file: "memcachelock/acquire.go",
		old:  `case stored && f.mark == mark && end >= c.clock.end(now, req.TTL):`,
		new:  `case stored && f.mark == mark:`,
		test: "test/stores/memcached TestTimeReadTooLow",
	},
	{
		rule: "names that memcached does not take are hashed",
		file: "memcachelock/key.go",
		old:  `if c := name[i]; c <= ' ' || c >= 0x7f {`,
		new:  `if c := name[i]; c < ' ' || c >= 0x7f {`,
		test: "test/stores/memcached TestConformance/names",
	},
	{
		rule: "a lock that is forgotten before it is granted is not granted",
		file: "memcachelock/acquire.go",
		old:  `case f == nil && stored: // it was forgotten just now, or over before it was there`,
		new:  `case f == nil && stored && cas == 1:`,
		test: "test/stores/memcached TestGoneAtOnce",
	},
}

var quorumMutants = []mutant{
	{
		rule: "a member that did not answer a release is told again",
		file: "quorum/release.go",
		old:  `if !isAnswer(err) {`,
		new:  `if err == nil {`,
		test: "quorum TestReleaseReachesMembersThatComeBack",
	},
	{
		rule: "a member that is down is asked now and then",
		file: "quorum/leftovers.go",
		old:  `		timer.Reset(pause.Next())`,
		new:  `		timer.Reset(minLeftPause)`,
		test: "quorum TestDeadMemberIsNotFlooded",
	},
	{
		rule: "what has expired is not released again",
		file: "quorum/leftovers.go",
		old:  `now.After(l.queue[0].until)`,
		new:  `now.Before(time.Time{})`,
		test: "quorum TestDeadMemberIsNotFlooded",
	},
	{
		rule: "Close counts the locks that others have to wait for",
		file: "quorum/leftovers.go",
		old:  `if len(s.members)-members.len() < s.rules.majority {`,
		new:  `if len(s.members)-members.len() < 0 {`,
		test: "quorum TestCloseSaysHowManyAreLeft",
	},
	{
		rule: "Close tells members for the last time",
		file: "quorum/leftovers.go",
		old:  `c != nil && ctx.Err() == nil && m.tell(ctx, c);`,
		new:  `c == nil && m.tell(ctx, c);`,
		test: "quorum TestCloseSaysHowManyAreLeft",
	},
	{
		rule: "any two majorities have a member in common",
		file: "quorum/rules.go",
		old:  `majority := members/2 + 1`,
		new:  `majority := members / 2`,
		test: "quorum TestRules",
	},
	{
		rule: "the drift of the clocks is taken off the TTL",
		file: "quorum/rules.go",
		old:  `return ttl/100 + 2*time.Millisecond`,
		new:  `return 0 * ttl`,
		test: "quorum TestRules",
	},
	{
		rule: "members whose answer got lost are released",
		file: "quorum/rules.go",
		old:  `return !errors.Is(err, driver.ErrHeld)`,
		new:  `return err == nil || errors.Is(err, driver.ErrHeld)`,
		test: "quorum TestRules",
	},
	{
		rule: "only a lock that a majority holds is repaired",
		file: "quorum/rules.go",
		old:  `return renewed >= majority`,
		new:  `return renewed >= 1`,
		test: "quorum TestRules",
	},
	{
		rule: "a second attempt of an owner is another claim",
		file: "quorum/rules.go",
		old:  `alias:     func(driver.Owner) driver.Owner { return driver.NewOwner() },`,
		new:  `alias:     func(owner driver.Owner) driver.Owner { return owner },`,
		test: "quorum TestRules",
	},
	{
		rule: "a token is given out when a majority has stored it",
		file: "quorum/ballot.go",
		old:  `func (b *ballot) won() bool { return b.raised.len() >= b.majority }`,
		new:  `func (b *ballot) won() bool { return b.granted.len() >= b.majority }`,
		test: "quorum TestTokenIsStoredByAMajority",
	},
	{
		rule: "a release does not overtake the acquisition that it is to undo",
		file: "quorum/claim.go",
		old:  `	if seat.busy {`,
		new:  `	if seat.busy && s == nil {`,
		test: "quorum TestLateAcquisitionAtAMember|TestRules|TestMajorityOutOfReach",
	},
	{
		rule: "asking again for less does not shorten",
		file: "quorum/acquire.go",
		old:  `!over && req.TTL > c.ttl {`,
		new:  `!over && req.TTL != c.ttl {`,
		test: "quorum TestAskingAgainForLessDoesNotShorten",
	},
	{
		rule: "a renewal that a member did not answer in time is ErrUnreachable",
		file: "quorum/member.go",
		old:  `errs[i] = m.blame(errs[i])`,
		new:  `_ = m.blame(errs[i])`,
		test: "quorum TestUnknownOutcomes",
	},
	{
		rule: "a grant that took longer than it lasts is rejected",
		file: "quorum/acquire.go",
		old:  `if time.Since(start) >= promise {`,
		new:  `if time.Since(start) < 0 {`,
		test: "quorum TestAnswersThatTakeLongerThanTheTTL",
	},
	{
		rule: "what is left of a lost lock is given up",
		file: "quorum/renew.go",
		old:  `case lost && !c.isOver():`,
		new:  `case lost && c.isOver():`,
		test: "quorum TestRules",
	},
	{
		rule: "a member that lost a lock gets it again",
		file: "quorum/renew.go",
		old:  `				s.repair(m, c)`,
		new:  `				_ = m`,
		test: "quorum TestRestartIsRepaired",
	},
	{
		rule: "a member counts for a renewal only if it promises enough",
		file: "quorum/renew.go",
		old:  `if grants[k].TTL >= r.claims[k].promised() {`,
		new:  `if grants[k].TTL > 0 {`,
		test: "quorum TestBriefMemberDoesNotCountForARenewal",
	},
}

var internalMutants = []mutant{
	{
		rule: "trust in a renewed lease counts from when the renewal was sent",
		file: "internal/watchdog/renewal.go",
		old:  `l.believe(sent)`,
		new:  `l.believe(now)`,
		test: "internal/watchdog TestTrustIsCountedFromTheSending",
	},
	{
		rule: "the watchdog looks every second, in case the machine slept",
		file: "internal/watchdog/watchdog.go",
		old:  `sleep = max(0, min(tick, w.leases[0].due-now))`,
		new:  `sleep = max(0, w.leases[0].due-now)`,
		test: "internal/watchdog TestSuspendedMachine",
	},
	{
		rule: "nothing is renewed after it was forgotten",
		file: "internal/watchdog/renewal.go",
		old:  `			continue // forgotten or lost since`,
		new:  `			_ = l // forgotten or lost since`,
		test: "internal/watchdog TestNothingIsRenewedAfterForget",
	},
	{
		rule: "a lease ends a margin before its TTL is over",
		file: "internal/watchdog/term.go",
		old:  `return sent + ttl - margin`,
		new:  `return sent + ttl - 0*margin`,
		test: "internal/watchdog TestHangingStore",
	},
	{
		rule: "a lock that the store says is not held is lost at once",
		file: "internal/watchdog/renewal.go",
		old:  `case errors.Is(err, driver.ErrNotHeld):`,
		new:  `case errors.Is(err, errMiscounted):`,
		test: "internal/watchdog TestOutcomesAreIndividual",
	},
	{
		rule: "a renewal that hangs leaves time for another one",
		file: "internal/watchdog/renewal.go",
		old:  `min(max(left/2, minCall), w.Timeout)`,
		new:  `max(left, minCall)`,
		test: "internal/watchdog TestHangingStore|TestOneHangingCall",
	},
	{
		rule: "a fixed TTL is never renewed",
		file: "internal/watchdog/watchdog.go",
		old:  `	if l.Fixed {`,
		new:  `	if l.Fixed && ttl < 0 {`,
		test: "internal/watchdog TestRenewsEveryThird",
	},
	{
		rule: "the lock is handed only to the waiter that is next",
		file: "internal/gate/gate.go",
		old:  `if next == nil || next.who != who {`,
		new:  `if next == nil {`,
		test: "internal/gate TestHandOnlyToTheNextOne",
	},
	{
		rule: "a waiter that is admitted while its context ends is inside",
		file: "internal/gate/gate.go",
		old:  `	if t.admitted {`,
		new:  `	if t.admitted && ctx.Err() == nil {`,
		test: "internal/gate TestAdmittedWhenTheContextEnds",
	},
	{
		rule: "a cancelled waiter leaves the queue",
		file: "internal/gate/gate.go",
		old: `	d.remove(t)
	return nil, context.Cause(ctx)`,
		new:  `	return nil, context.Cause(ctx)`,
		test: "internal/gate TestCancelledWaiterLeavesAtOnce",
	},
	{
		rule: "the time that the machine slept counts",
		file: "internal/clock/clock.go",
		old:  `slept = int64(c.suspended() - c.base)`,
		new:  `slept = int64(c.base - c.base)`,
		test: "internal/clock TestSuspendedTimeCounts",
	},
	{
		rule: "the clock never goes backwards",
		file: "internal/clock/clock.go",
		old:  `if slept < known+int64(noise) {`,
		new:  `if slept == known {`,
		test: "internal/clock TestNeverBackwards",
	},
	{
		rule: "a context ends no later than its parent",
		file: "internal/deadline/deadline.go",
		old:  `ok && earlier.Before(at) {`,
		new:  `ok && earlier.After(at) {`,
		test: "internal/deadline TestContext",
	},
	{
		rule: "a context that has ended is done",
		file: "internal/deadline/deadline.go",
		old: `		if c.ended {
			c.stop()
		}`,
		new: `		if c.ended {
			_ = c.stop
		}`,
		test: "internal/deadline TestContext",
	},
	{
		rule: "delays have a limit",
		file: "internal/backoff/backoff.go",
		old:  `min(max(2*b.next, b.Min), b.Max)`,
		new:  `max(2*b.next, b.Min)`,
		test: "internal/backoff TestDelaysDouble",
	},
	{
		rule: "few goroutines stay when they have nothing to do",
		file: "internal/workerpool/workerpool.go",
		old:  `if p.idle.Add(1) > p.most {`,
		new:  `if p.idle.Add(1) > p.most+1000 {`,
		test: "internal/workerpool TestFewStay",
	},
	{
		rule: "a task runs at once, also if all are busy",
		file: "internal/workerpool/workerpool.go",
		old: `	default:
		go p.work(f)
	}`,
		new: `	case <-p.quit:
	}`,
		test: "internal/workerpool TestAllRunAtOnce",
	},
	{
		rule: "an acquisition that outlives its release is undone when it ends",
		file: "internal/attempts/attempts.go",
		old:  `			r.overdue = true`,
		new:  `			r.overdue = false`,
		test: "internal/attempts TestAcquisitionThatOutlivesSettleIsUndone",
	},
	{
		rule: "an acquisition without an answer is undone for as long as it may be carried out",
		file: "internal/attempts/attempts.go",
		old:  `return r.underway == 0 && (!r.lost || age > lateness)`,
		new:  `return r.underway == 0`,
		test: "internal/attempts TestLostAcquisitionIsUndoneWhenItArrives",
	},
	{
		rule: "nothing is undone before the owner is released",
		file: "internal/attempts/attempts.go",
		old:  `	case r.released && r.overdue:`,
		new:  `	case r.lost || r.released && r.overdue:`,
		test: "internal/attempts TestNothingIsUndoneBeforeTheRelease",
	},
}
