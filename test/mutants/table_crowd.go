package main

func init() {
	add(mutant{
		rule: "the fair callers of a process send a few requests at a time",
		file: "internal/crowd/crowd.go",
		old:  "if c.crowd.underWay < MaxRequests {",
		new:  "if c.crowd.underWay >= 0 {",
		test: ". TestFairCrowdWaitsInOrder",
	})
	add(mutant{
		rule: "the first of the fair waiters polls for all",
		file: "wait.go",
		old:  "n == restInCrowd || !a.restsInCrowd(delay)",
		new:  "true",
		test: ". TestFairCrowdWaitsInOrder",
	})
	add(mutant{
		rule: "fair waiters poll if the first of them gets no answer",
		file: "fair.go",
		old:  " && c.clock.NoLaterThanNow()-a.line.LastAnswer() < 2*delay",
		new:  "",
		test: ". TestFairCrowdNoticesAnOutage",
	})
	add(mutant{
		rule: "a request that its own caller gives up is no answer of the store",
		file: "fair.go",
		old:  "a.line.End(isAnswer(a.call.ctx, err), ",
		new:  "a.line.End(!errors.Is(err, ErrUnreachable), ",
		test: ". TestLimitInTheLineOfACrowd",
	})
	add(mutant{
		rule: "TryLock waits in the line of a crowd for a RequestTimeout at most",
		file: "fair.go",
		old:  "if a.call.isWaiter { // TryLock",
		new:  "if true { // TryLock",
		test: ". TestTryLockDoesNotWaitForACrowd",
	})
	add(mutant{
		rule: "many waiters of a process share a read of the queue (etcd)",
		file: "etcdlock/queue.go",
		old:  "len(nw.waiters) < crowded",
		new:  "len(nw.waiters) < 1e6",
		test: "test/stores/etcd TestFairCrowd$",
	})
	add(mutant{
		rule: "many waiters of a process share a read of the queue (ZooKeeper)",
		file: "zklock/queue.go",
		old:  "c.waiting < crowded",
		new:  "c.waiting < 1e6",
		test: "test/stores/zookeeper TestFairCrowd$",
	})
}
