package main

func init() {
	add(mutant{
		rule: "a lock that was granted is not taken for one that is being removed",
		file: "zklock/acquire.go",
		old:  `c.granted, c.queued, c.leaving = true, false, false`,
		new:  `c.granted, c.queued = true, false`,
		test: "test/zookeeper TestGrantAfterFailedRemoval",
	})
	add(mutant{
		rule: "a look without the leader's confirmation grants nothing",
		file: "zklock/acquire.go",
		old:  `if err := <-confirmed; err != nil {`,
		new:  `if err := error(nil); err != nil {`,
		test: "test/zookeeper TestServerWithoutLeader",
	})
	add(mutant{
		rule: "a reconnection wakes those who wait",
		file: "zklock/events.go",
		old: `	s.setUp(true)
	wakeAll(waiters)`,
		new: `	s.setUp(true)
	_ = waiters`,
		test: "test/zookeeper TestReconnectionWakes",
	})
}
