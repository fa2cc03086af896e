package main

// Rules of the internal packages that tests of the core find broken.
func init() {
	add(mutant{
		rule: "trust of a renewal counts from when it was sent",
		file: "internal/watchdog/renewal.go",
		old:  "			h.trustFrom(sent)\n",
		new:  "			h.trustFrom(now)\n",
		test: ". TestTrustOfARenewalCountsFromItsSending",
	})
	add(mutant{
		rule: "the margin is taken off the trust",
		file: "internal/watchdog/watchdog.go",
		old:  "int64(sent + ttl - h.Margin)",
		new:  "int64(sent + ttl + h.Margin)",
		test: ". TestUnreachableStoreEndsTheLeaseInTime",
	})
	add(mutant{
		rule: "callers that give up without an answer pass on what the callers before them knew",
		file: "internal/localqueue/localqueue.go",
		old:  "		if remember {\n",
		new:  "		if remember || !remember {\n",
		test: ". TestShortLimitsAreHeld",
	})
	add(mutant{
		rule: "a free slot remembers no occupant",
		file: "internal/localqueue/localqueue.go",
		old:  "s.view.Occupied, s.view.Occupant, s.view.Previous = false, none, nil",
		new:  "s.view.Occupied, s.view.Occupant = false, none",
		test: "internal/localqueue TestPreviousIsRemembered",
	})
	add(mutant{
		rule: "a store that never answered gets no second chance",
		file: "internal/contention/outage.go",
		old:  "o.began == 0 || o.answered && now-o.began < ttl",
		new:  "o.began == 0 || now-o.began < ttl",
		test: "internal/contention TestOutage",
	})
	add(mutant{
		rule: "a waiter rides out an outage that is shorter than its TTL",
		file: "internal/contention/outage.go",
		old:  "o.began == 0 || o.answered && now-o.began < ttl",
		new:  "o.began == 0",
		test: ". TestWaiterRidesOutAShortOutage",
	})
	add(mutant{
		rule: "hand-over inside a process ends, so that others get their time",
		file: "internal/contention/contention.go",
		old:  "return !s.sliceEnded(now, p) && now-s.granted <= maxHandOver",
		new:  "return true",
		test: ". TestHandOverEndsWithTheTimeSlice",
	})
	add(mutant{
		rule: "the loss of a lease is declared without asking the store",
		file: "internal/watchdog/watchdog.go",
		old:  "int64(sent + ttl - h.Margin)",
		new:  "int64(sent + 10*ttl - h.Margin)",
		test: ". TestUnreachableStoreEndsTheLeaseInTime",
	})
	add(mutant{
		rule: "a caller may not be told that the lock is free while an earlier attempt of its owner is under way",
		file: "driver/attempts/attempts.go",
		old:  "	for r.underway > 0 && grant.Token == 0 {\n",
		new:  "	for false {\n",
		test: "driver/attempts TestSettleWaitsForAcquisitionsUnderWay",
	})
	add(mutant{
		rule: "an attempt that lost its answer is undone when it arrives",
		file: "driver/attempts/attempts.go",
		old:  "	if !r.unanswered && !r.overdue {\n		l.forgetLocked(r)\n",
		new:  "	if true {\n		l.forgetLocked(r)\n",
		test: "driver/attempts TestLostAcquisitionIsUndoneWhenItArrives",
	})
	add(mutant{
		rule: "nothing is undone before its owner was released",
		file: "driver/attempts/attempts.go",
		old:  "	case r.released && r.overdue:\n",
		new:  "	case !answered || r.released && r.overdue:\n",
		test: "driver/attempts TestNothingIsUndoneBeforeTheRelease",
	})
	add(mutant{
		rule: "undoing goes on while the server does not answer",
		file: "driver/attempts/attempts.go",
		old:  "	finished := age > giveUp\n",
		new:  "	finished := age > lateness\n",
		test: "driver/attempts TestUndoingOutlastsAnOutage",
	})
	add(mutant{
		rule: "nothing is undone while the owner's release is under way",
		file: "driver/attempts/attempts.go",
		old:  "	r.releases++\n",
		new:  "	l.scheduleLocked(r)\n",
		test: "driver/attempts TestNothingIsUndoneDuringARelease",
	})
	add(mutant{
		rule: "the release of a grant does not wait for an attempt that is stuck",
		file: "driver/attempts/attempts.go",
		old:  "r.underway > 0 && grant.Token == 0",
		new:  "r.underway > 0",
		test: "driver/attempts TestReleaseOfGrantedLockDoesNotWait",
	})
	add(mutant{
		rule: "Close gives back what is held",
		file: "close.go",
		old:  "err = g.releaseOnce(context.Background());",
		new:  "err = context.Background().Err();",
		test: ". TestCloseReleasesAllLocks",
	})
}
