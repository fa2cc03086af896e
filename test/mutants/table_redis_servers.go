package main

func init() {
	add(mutant{
		rule: "a waiter has one place in the queue",
		file: "redislock/lua/redisson_acquire_any_mode.lua",
		old:  `if not placed and not redis.call('lpos', queue, place) then`,
		new:  `if not placed then`,
		test: "test/stores/redis TestWaiterWithTornPlaceIsServedOnce",
	})
	add(mutant{
		rule: "a waiter whose place was removed gets another one",
		file: "redislock/lua/redisson_acquire_any_mode.lua",
		old: `redis.call('zadd', timeouts, digits(now + place_ttl + ahead * FOREIGN_WAIT), place)
-- Only the list decides whether the owner has a place: the set may have lost or kept it.
if not placed and not redis.call('lpos', queue, place) then`,
		new:  `if redis.call('zadd', timeouts, digits(now + place_ttl + ahead * FOREIGN_WAIT), place) == 1 then`,
		test: "test/stores/redis TestWaiterWithTornPlaceIsServedOnce",
	})
	add(mutant{
		rule: "a token is larger than the counter",
		file: "redislock/lua/redisson_acquire_by_estimate.lua",
		old:  `elseif next > tonumber(token) then`,
		new:  `elseif next >= 9007199254740992 then`,
		test: "test/stores/redis TestTokensRise",
	})
	add(mutant{
		rule: "a refused WAIT is a lock that was not replicated",
		file: "redislock/pipeline.go",
		old:  `return fmt.Errorf("%w: %w", ErrNotReplicated, explain(err))`,
		new:  `return explain(err)`,
		test: "redislock TestRefusedWaitIsNotReplicated",
	})
	add(mutant{
		rule: "a command that was not answered counts before its acknowledgement",
		file: "redislock/pipeline.go",
		old: `return unanswered(cmd.Err()) }) {
		return nil`,
		new: `return unanswered(cmd.Err()) }) {
		return ackErr`,
		test: "test/stores/redis TestReplacedNodeClientDoesNotCloseTheStore",
	})
	add(mutant{
		rule: "the client of a server that was replaced does not close the store",
		file: "redislock/route.go",
		old:  `r.cluster != nil && haveResults(err) && errors.Is(cmd.Err(), redis.ErrClosed)`,
		new:  `r.cluster == nil && haveResults(err) && errors.Is(cmd.Err(), redis.ErrClosed)`,
		test: "test/stores/redis TestReplacedNodeClientDoesNotCloseTheStore",
	})
	add(mutant{
		rule: "Close waits for the search for a cluster",
		file: "redislock/route.go",
		old:  `return r.tasks.call(ctx, search)`,
		new:  `return newTasks().call(ctx, search)`,
		test: "redislock TestCloseWaitsForTheSearch/loadCluster",
	})
	add(mutant{
		rule: "Close waits for the search for a cluster's servers",
		file: "redislock/route.go",
		old:  `err := r.tasks.call(ctx, func() error {`,
		new:  `err := newTasks().call(ctx, func() error {`,
		test: "redislock TestCloseWaitsForTheSearch/allServers",
	})
	add(mutant{
		rule: "a server that does not say its mode is asked with a script",
		file: "redislock/servers.go",
		old:  ` || isCrossSlot(both.Err()) {`,
		new:  ` {`,
		test: "test/stores/redis TestSingleServerClientInClusterMode/the_server_does_not_say_its_mode",
	})
	add(mutant{
		rule: "a server's CROSSSLOT is remembered",
		file: "redislock/servers.go",
		old: `	s.clustered.Store(true)
	return true`,
		new: `	s.clustered.Store(true)
	return false`,
		test: "test/stores/redis TestSingleServerClientInClusterMode/neither_server_nor_user_can_tell",
	})
	add(mutant{
		rule: "Replicas is refused where WAIT may reach another server",
		file: "redislock/servers.go",
		old:  `if s.replicas > 0 && s.hidesCluster() {`,
		new:  `if s.replicas > 1 && s.hidesCluster() {`,
		test: "test/stores/redis TestWrappedClusterClientWorks",
	})
	add(mutant{
		rule: "a hidden Ring is refused",
		file: "redislock/servers.go",
		old:  `f.Anonymous && f.Type.Implements`,
		new:  `!f.Anonymous && f.Type.Implements`,
		test: "test/stores/redis TestWrappedRingIsRejected",
	})
	add(mutant{
		rule: "waiters listen to the shard's channel",
		file: "redislock/watch.go",
		old:  `s.clustered.Load() && !s.hidesCluster() {`,
		new:  `s.clustered.Load() && s.hidesCluster() {`,
		test: "test/stores/redis TestSingleServerClientSharesLocksOfACluster",
	})
	add(mutant{
		rule: "releases are published to the shard's channel",
		file: "redislock/scripts.go",
		old:  `if r.clustered.Load() && sc.cluster != nil {`,
		new:  `if r.clustered.Load() && sc.cluster == nil {`,
		test: "test/stores/redis TestSingleServerClientSharesLocksOfACluster",
	})
	add(mutant{
		rule: "locks of several hash slots are renewed by several scripts",
		file: "redislock/renew.go",
		old:  `tag = hashTag(key)`,
		new:  `tag = ""`,
		test: "test/stores/redis TestSingleServerClientInClusterMode/the_server_says_its_mode",
	})
	add(mutant{
		rule: "Watch returns when the server has confirmed",
		file: "redislock/subscriptions.go",
		old: `	select {
	case <-sub.answered:`,
		new: `	select {
	default:
		return nil
	case <-sub.answered:`,
		test: "test/stores/redis TestWatchAgainMissesNoMessage",
	})
	add(mutant{
		rule: "a client that connects again by itself is noticed",
		file: "redislock/pubsubconn.go",
		old:  `return errReconnected // the client requested it, not this connection`,
		new:  `return nil`,
		test: "redislock TestReconnectionOfTheClientIsNoticed",
	})
	add(mutant{
		rule: "one repair replaces a subscription",
		file: "redislock/watch.go",
		old: `	if s.listener != old || s.stopped {
		return false`,
		new: `	if s.stopped {
		return false`,
		test: "redislock TestLateRepairReplacesNoNewerListener",
	})
	add(mutant{
		rule: "Diagnose warns of evicted locks",
		file: "redislock/diagnose.go",
		old: `case strings.HasPrefix(policy, "volatile-"):
		return finding.Breaking(driver.PromiseExclusion, finding.Warning(check,`,
		new: `case strings.HasPrefix(policy, "volatile-"):
		return finding.Breaking("", finding.OK(check,`,
		test: "test/stores/redis TestDiagnose/eviction",
	})
	add(mutant{
		rule: "a master that became a replica makes a cluster's client look for the new one",
		file: "redislock/pipeline.go",
		old:  `		case noLongerMaster(err): // over`,
		new:  `		case false && noLongerMaster(err): // over`,
		test: "test/stores/redis TestClientForReadersFindsTheNewMaster",
	})
	add(mutant{
		rule: "an error of the server is recognized inside that of a hook",
		file: "redislock/errors.go",
		old:  `return anyIn(wrapper.Unwrap(), is)`,
		new:  `return false`,
		test: "redislock TestWrappedErrorsKeepTheirMeaning",
	})
	add(mutant{
		rule: "the nil of Sentinels is no reply to a command",
		file: "redislock/errors.go",
		old:  ` && !begins(err, "redis: all sentinels")`,
		new:  ``,
		test: "redislock TestWrappedErrorsKeepTheirMeaning",
	})
}
