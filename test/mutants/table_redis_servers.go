package main

func init() {
	add(mutant{
		rule: "a waiter has one place in the queue",
		file: "redislock/lua/fair_acquire.lua",
		old:  `if not placed and not redis.call('lpos', queue, owner) then`,
		new:  `if not placed then`,
		test: "test/stores/redis TestQueueThatLostAnEntry",
	})
	add(mutant{
		rule: "a waiter whose place was removed gets another one",
		file: "redislock/lua/fair_acquire.lua",
		old: `redis.call('zadd', timeouts, digits(now + ttl + ahead * FOREIGN_WAIT), owner)
-- The list alone says who has a place: an owner may be in one of the two only.
if not placed and not redis.call('lpos', queue, owner) then`,
		new:  `if redis.call('zadd', timeouts, digits(now + ttl + ahead * FOREIGN_WAIT), owner) == 1 then`,
		test: "test/stores/redis TestQueueThatLostAnEntry",
	})
	add(mutant{
		rule: "a token is larger than the counter",
		file: "redislock/lua/redisson_acquire.lua",
		old:  `elseif last >= tonumber(token) then`,
		new:  `elseif last >= 9007199254740991 then`,
		test: "test/stores/redis TestTokensRise",
	})
	add(mutant{
		rule: "a refused WAIT is a lock that was not replicated",
		file: "redislock/pipeline.go",
		old:  `return fmt.Errorf("%w: %w", ErrNotReplicated, explain(err))`,
		new:  `return explain(err)`,
		test: "redislock TestRefusedWait",
	})
	add(mutant{
		rule: "a command that was not answered counts before its acknowledgement",
		file: "redislock/pipeline.go",
		old: `		if unanswered(cmd.Err()) {
			return nil`,
		new: `		if unanswered(cmd.Err()) {
			return acked`,
		test: "test/stores/redis TestNodeClientClosedInBetween",
	})
	add(mutant{
		rule: "the client of a server that was replaced does not close the store",
		file: "redislock/route.go",
		old:  `return r.cluster != nil && returned(err) && errors.Is(cmd.Err(), redis.ErrClosed)`,
		new:  `return r.cluster == nil && returned(err) && errors.Is(cmd.Err(), redis.ErrClosed)`,
		test: "test/stores/redis TestNodeClientClosedInBetween",
	})
	add(mutant{
		rule: "Close waits for the search for a cluster",
		file: "redislock/route.go",
		old:  `r.tasks.Go(func() {`,
		new:  `func(f func()) { go f() }(func() {`,
		test: "redislock TestCloseJoinsTheSearch/find",
	})
	add(mutant{
		rule: "Close waits for the search for a cluster's servers",
		file: "redislock/route.go",
		old:  `r.tasks.Go(task)`,
		new:  `go task()`,
		test: "redislock TestCloseJoinsTheSearch/nodes",
	})
	add(mutant{
		rule: "a server that does not tell its mode is asked with a script",
		file: "redislock/mode.go",
		old:  ` || crossesSlots(both.Err()) {`,
		new:  ` {`,
		test: "test/stores/redis TestPlainClientOfAClusterModeServer/the_server_does_not_tell",
	})
	add(mutant{
		rule: "a server's CROSSSLOT is remembered",
		file: "redislock/mode.go",
		old: `	s.cluster.Store(true)
	return true`,
		new: `	s.cluster.Store(true)
	return false`,
		test: "test/stores/redis TestPlainClientOfAClusterModeServer/nothing_tells",
	})
	add(mutant{
		rule: "Replicas is refused where WAIT may reach another server",
		file: "redislock/mode.go",
		old:  `if s.replicas > 0 && s.hidden() {`,
		new:  `if s.replicas > 1 && s.hidden() {`,
		test: "test/stores/redis TestTypeAroundAClusterClient",
	})
	add(mutant{
		rule: "a hidden Ring is refused",
		file: "redislock/mode.go",
		old:  `f.Anonymous && f.Type.Implements`,
		new:  `!f.Anonymous && f.Type.Implements`,
		test: "test/stores/redis TestTypeAroundARing",
	})
	add(mutant{
		rule: "waiters listen to the shard's channel",
		file: "redislock/mode.go",
		old:  `if one, ok := s.client.(*redis.Client); ok && s.cluster.Load() {`,
		new:  `if one, ok := s.client.(*redis.Client); ok && s.hidden() {`,
		test: "test/stores/redis TestPlainClientOfOneShard",
	})
	add(mutant{
		rule: "releases are published to the shard's channel",
		file: "redislock/scripts.go",
		old:  `if slots && sc.cluster != nil {`,
		new:  `if slots && sc.cluster == nil {`,
		test: "test/stores/redis TestPlainClientOfOneShard",
	})
	add(mutant{
		rule: "locks of several slots are renewed by several scripts",
		file: "redislock/renew.go",
		old:  `slot = hashTag(key)`,
		new:  `slot = ""`,
		test: "test/stores/redis TestPlainClientOfAClusterModeServer/the_server_tells",
	})
	add(mutant{
		rule: "Watch returns when the server has confirmed",
		file: "redislock/subscriber.go",
		old: `	select {
	case <-ch.confirmed:
		return nil
	case <-ch.failed:`,
		new: `	select {
	default:
		return nil
	case <-ch.confirmed:
		return nil
	case <-ch.failed:`,
		test: "test/stores/redis TestWatchAgain",
	})
	add(mutant{
		rule: "a client that connects again by itself is noticed",
		file: "redislock/line.go",
		old:  `return errReconnected // the client asked for it, not this line`,
		new:  `return nil`,
		test: "redislock TestClientReconnects",
	})
	add(mutant{
		rule: "one repair replaces a subscription",
		file: "redislock/shard.go",
		old: `	if s.watcher != old || s.stopped {
		return nil, false`,
		new: `	if s.stopped {
		return nil, false`,
		test: "redislock TestOnlyOneRepairReplaces",
	})
	add(mutant{
		rule: "Diagnose warns of evicted locks",
		file: "redislock/diagnose.go",
		old: `case strings.HasPrefix(policy, "volatile-"):
		f.Level, f.Breaks = driver.LevelWarning, driver.PromiseExclusion`,
		new: `case strings.HasPrefix(policy, "volatile-"):
		f.Level, f.Breaks = driver.LevelOK, driver.PromiseExclusion`,
		test: "test/stores/redis TestDiagnose/eviction",
	})
}
