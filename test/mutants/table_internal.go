package main

func init() {
	for _, m := range internalMutants {
		add(m)
	}
}

// internalMutants break rules of the internal packages.
var internalMutants = []mutant{
	{
		rule: "trust in a renewed lease counts from when the renewal was sent",
		file: "internal/watchdog/renewal.go",
		old:  `h.trustFrom(sent)`,
		new:  `h.trustFrom(now)`,
		test: "internal/watchdog TestTrustCountsFromTheSending",
	},
	{
		rule: "an answer after the trust deadline does not revive a hold",
		file: "internal/watchdog/renewal.go",
		old:  `case h.TrustDeadline() <= now:`,
		new:  `case h.TrustDeadline() < 0:`,
		test: "internal/watchdog TestLateAnswerDoesNotReviveAHold",
	},
	{
		rule: "the watchdog checks every second, in case the machine was suspended",
		file: "internal/watchdog/watchdog.go",
		old:  `sleep = max(0, min(tick, w.holds[0].due-now))`,
		new:  `sleep = max(0, w.holds[0].due-now)`,
		test: "internal/watchdog TestLossIsNoticedAfterSuspension",
	},
	{
		rule: "nothing is renewed after it was forgotten",
		file: "internal/watchdog/renewal.go",
		old:  `			continue // forgotten or lost meanwhile`,
		new:  `			_ = h // forgotten or lost meanwhile`,
		test: "internal/watchdog TestNothingIsRenewedAfterForget",
	},
	{
		rule: "a lease ends a margin before its TTL is over",
		file: "internal/watchdog/watchdog.go",
		old:  `int64(sent + ttl - h.Margin)`,
		new:  `int64(sent + ttl - 0*h.Margin)`,
		test: "internal/watchdog TestHangingStore",
	},
	{
		rule: "a lock that the store says is not held is lost at once",
		file: "internal/watchdog/renewal.go",
		old:  `case errors.Is(errs[i], driver.ErrNotHeld):`,
		new:  `case errors.Is(errs[i], errMiscounted):`,
		test: "internal/watchdog TestEveryLeaseHasItsOwnOutcome",
	},
	{
		rule: "a renewal that hangs leaves time for another one",
		file: "internal/watchdog/renewal.go",
		old:  `min(max(left/2, minCall), w.Timeout)`,
		new:  `max(left, minCall)`,
		test: "internal/watchdog TestHangingStore|TestHangingCallDoesNotDelayOthers",
	},
	{
		rule: "a fixed TTL is never renewed",
		file: "internal/watchdog/watchdog.go",
		old:  `	if h.Fixed {`,
		new:  `	if h.Fixed && ttl < 0 {`,
		test: "internal/watchdog TestLeaseIsRenewedEveryThirdOfItsTTL",
	},
	{
		rule: "the slot is left only to a waiter that accepts it",
		file: "internal/localqueue/localqueue.go",
		old:  `t == nil || !accepts(&t.Waiter)`,
		new:  `t == nil`,
		test: "internal/localqueue TestLeaveToTheFirstWaiterOnly",
	},
	{
		rule: "a waiter that is admitted while its context ends is the occupant",
		file: "internal/localqueue/localqueue.go",
		old:  `t.waits, t.prev, t.next = false, nil, nil`,
		new:  `t.prev, t.next = nil, nil`,
		test: "internal/localqueue TestLeaveRacingWithAdmission",
	},
	{
		rule: "a cancelled waiter leaves the queue",
		file: "internal/localqueue/localqueue.go",
		old: `	s.removeLocked(t)
	return true`,
		new:  `	return true`,
		test: "internal/localqueue TestWaiterThatLeft",
	},
	{
		rule: "the time in which the machine was suspended counts",
		file: "internal/clock/clock.go",
		old:  `measured := int64(c.total() - c.base)`,
		new:  `measured := int64(c.base - c.base)`,
		test: "internal/clock TestSuspendedTimeCounts",
	},
	{
		rule: "the clock never goes backwards",
		file: "internal/clock/clock.go",
		old:  `if measured < last+int64(noise) {`,
		new:  `if measured == last {`,
		test: "internal/clock TestNeverBackwards",
	},
	{
		rule: "a context ends no later than its parent",
		file: "internal/deadline/deadline.go",
		old:  `ok && earlier.Before(at) {`,
		new:  `ok && earlier.After(at) {`,
		test: "internal/deadline TestContextBehavesLikeWithTimeout",
	},
	{
		rule: "a store does not see why its caller's context ended",
		file: "internal/deadline/deadline.go",
		old:  `context.WithoutCancel(w.Context).Value(key)`,
		new:  `w.Context.Value(key)`,
		test: ". TestErrorOfAnotherLockIsNoAnswer",
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
		test: "internal/deadline TestContextBehavesLikeWithTimeout",
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
		file: "driver/attempts/attempts.go",
		old:  `			r.overdue = true`,
		new:  `			r.overdue = false`,
		test: "driver/attempts TestAcquisitionThatOutlivesSettleIsUndone",
	},
	{
		rule: "an acquisition without an answer is undone for as long as it may be carried out",
		file: "driver/attempts/attempts.go",
		old:  `finished = r.underway == 0 && (!r.unanswered || min(age, time.Since(r.silent)) > lateness)`,
		new:  `finished = r.underway == 0`,
		test: "driver/attempts TestLostAcquisitionIsUndoneWhenItArrives",
	},
	{
		rule: "after an outage an acquisition is undone for as long as before",
		file: "driver/attempts/attempts.go",
		old:  `min(age, time.Since(r.silent)) > lateness`,
		new:  `age > lateness`,
		test: "driver/attempts TestUndoingGoesOnAfterAnOutage",
	},
	{
		rule: "nothing is undone before the owner is released",
		file: "driver/attempts/attempts.go",
		old:  `	case r.released && r.overdue:`,
		new:  `	case r.unanswered || r.released && r.overdue:`,
		test: "driver/attempts TestNothingIsUndoneBeforeTheRelease",
	},
	{
		rule: "a busy process pauses at the end of its time slice",
		file: "internal/contention/contention.go",
		old:  `s.began != 0 && now-s.began >= max(s.length, p.slice)`,
		new:  `s.began != 0 && now-s.began >= time.Hour`,
		test: "internal/contention TestBusyProcessPausesAfterItsSlice|TestHandOverEndsWithTheSlice",
	},
	{
		rule: "time slices grow while no other process wants the lock",
		file: "internal/contention/contention.go",
		old:  `s.length = min(2*max(s.length, p.slice), cmp.Or(p.longest, slicePerPause*s.paused))`,
		new:  `s.length = cmp.Or(p.slice)`,
		test: "internal/contention TestSlicesGrowWithoutContenders",
	},
	{
		rule: "a pause that the contenders missed gets longer",
		file: "internal/contention/contention.go",
		old:  `backoff.Jitter(p.yield << s.missed)`,
		new:  `backoff.Jitter(p.yield)`,
		test: "internal/contention TestPausesThatContendersMissGetLonger",
	},
	{
		rule: "callers without time for a long pause make a short one",
		file: "internal/contention/contention.go",
		old:  `		s.paused, s.missed = 0, 0`,
		new:  `		s.paused = 0`,
		test: "internal/contention TestPausesThatContendersMissGetLonger",
	},
	{
		rule: "a caller goes on with the pause of the caller before it",
		file: "internal/contention/contention.go",
		old:  `if s.resumes > now {`,
		new:  `if s.resumes > now && p == nil {`,
		test: "internal/contention TestPauseGoesOnWithTheNextCaller",
	},
	{
		rule: "a pause that is too short tells nothing of other processes",
		file: "internal/contention/contention.go",
		old:  `s.resumes, s.began, s.paused = end, 0, 0`,
		new:  `s.resumes, s.began = end, 0`,
		test: "internal/contention TestPauseGoesOnWithTheNextCaller",
	},
	{
		rule: "a caller that was served occupies no slot",
		file: "internal/localqueue/localqueue.go",
		old:  `		t.served = true`,
		new:  `		t.served = false`,
		test: "internal/localqueue TestServedWaitersHaveNoSlot",
	},
	{
		rule: "an announcement carries what was said",
		file: "internal/localqueue/localqueue.go",
		old:  `n.Said, s.notice = s.view, nil`,
		new:  `s.notice = nil`,
		test: "internal/localqueue TestNoticesSayWhatWasAnnounced",
	},
	{
		rule: "a process that left the lock alone need not pause",
		file: "internal/contention/contention.go",
		old:  `if now-s.released > pause {`,
		new:  `if now-s.released > time.Hour {`,
		test: "internal/contention TestIdleTimeEndsTheSlice",
	},
	{
		rule: "a waiter yields to contenders that had no turn",
		file: "internal/contention/contenders.go",
		old: `		one.served = false
`,
		new:  ``,
		test: "internal/contention TestWaiterYieldsToContendersThatHadNoTurn",
	},
	{
		rule: "a waiter that has not had the lock yields to no other process",
		file: "internal/contention/contention.go",
		old:  `if !hadIt || rand.N(yieldToUnseen) != 0 {`,
		new:  `if hadIt && rand.N(yieldToUnseen) != 0 {`,
		test: "internal/contention TestFirstTimeWaiterDoesNotYield",
	},
	{
		rule: "a process pauses for as long as waiters that poll need",
		file: "internal/contention/contention.go",
		old:  `pause = p.polling.untilPolled(s.released - s.granted)`,
		new:  `pause = p.polling.untilPolled(0)`,
		test: "internal/contention TestPauseLastsUntilWaitersHavePolled",
	},
	{
		rule: "waiters poll a lock that changes hands often",
		file: "internal/contention/polling.go",
		old: `		delay = pollInterval(now - last)
`,
		new:  ``,
		test: ". TestPollingWaitersDoNotStarve",
	},
	{
		rule: "the process whose turn it is polls more often",
		file: "internal/contention/polling.go",
		old: `			delay *= outOfTurn
`,
		new:  ``,
		test: "internal/contention TestProcessWithTheTurnPollsMoreOften",
	},
	{
		rule: "a process that missed the turns of others has its turn nevertheless",
		file: "internal/contention/polling.go",
		old:  ` || s.changes.count > 2*len(s.contenders)`,
		new:  ``,
		test: "internal/contention TestProcessWithTheTurnPollsMoreOften",
	},
	{
		rule: "a contender that does not come is forgotten",
		file: "internal/contention/contenders.go",
		old:  `if one.missed < maxMissed {`,
		new:  `if one.missed >= 0 {`,
		test: "internal/contention TestContenderThatLeftIsForgotten",
	},
}
