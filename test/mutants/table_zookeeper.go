package main

func init() {
	add(mutant{
		rule: "a granted lock is not taken for one that is being removed",
		file: "zklock/acquire.go",
		old:  `h.held, h.keepPlace, h.leaving = true, false, false`,
		new:  `h.held, h.keepPlace = true, false`,
		test: "test/stores/zookeeper TestGrantAfterFailedRemoval",
	})
	add(mutant{
		rule: "a position without the leader's confirmation grants nothing",
		file: "zklock/acquire.go",
		old:  `if err := <-confirmed; err != nil {`,
		new:  `if err := error(nil); err != nil {`,
		test: "test/stores/zookeeper TestServerWithoutLeaderGrantsNothing",
	})
	add(mutant{
		rule: "a reconnection wakes waiters",
		file: "zklock/session.go",
		old: `	s.setConnected(true)
	s.wakeAllLocked()`,
		new:  `	s.setConnected(true)`,
		test: "test/stores/zookeeper TestReconnectionWakesWaiters",
	})
	add(mutant{
		rule: "a shorter timeout ends the promise of an earlier grant",
		file: "zklock/hold.go",
		old:  `return h.promised <= s.promise(h.ttl, 0)`,
		new:  `return true`,
		test: "test/stores/zookeeper TestShorterTimeoutAfterReconnection",
	})
	add(mutant{
		rule: "the version of a container proves nothing without the anchor",
		file: "zklock/release.go",
		old: `	err := s.deleteWithAnchor(container, anchorName(id), node, version)
`,
		new: `	_ = s.deleteIfExists(container, anchorName(id))
	_, err := s.transact(&zk.CheckVersionRequest{Path: container, Version: version}, &zk.DeleteRequest{Path: container + "/" + node, Version: anyVersion})
`,
		test: "test/stores/zookeeper TestStaleHolderLeavesNewLock",
	})
	add(mutant{
		rule: "an anchor proves nothing without the version of the container",
		file: "zklock/release.go",
		old: `		&zk.CheckVersionRequest{Path: container, Version: version},
`,
		new:  ``,
		test: "test/stores/zookeeper TestHolderOfRemovedNodeLeavesNewLock",
	})
	add(mutant{
		rule: "a deletion after a comparison compares the token",
		file: "zklock/release.go",
		old:  `if !exists || tokenOf(stat.Czxid) != token {`,
		new:  `if !exists || tokenOf(stat.Czxid) < token {`,
		test: "test/stores/zookeeper TestStaleHolderLeavesNewLock",
	})
	add(mutant{
		rule: "lock-0 of another holder is not taken for the owner's",
		file: "zklock/acquire.go",
		old:  `if !exists || tokenOf(stat.Czxid) != h.token {`,
		new:  `if !exists || tokenOf(stat.Czxid) < h.token {`,
		test: "test/stores/zookeeper TestStaleHolderIsNotGrantedAgain",
	})
	add(mutant{
		rule: "Break removes a node without an ID only while its container is the same",
		file: "zklock/release.go",
		old:  `c.node != unfairNode && !hasID(path.Base(c.node))`,
		new:  `false && path.Base("") == ""`,
		test: "test/stores/zookeeper TestLateBreakLeavesNewLock",
	})
	add(mutant{
		rule: "each node has an ID of its own",
		file: "zklock/create.go",
		old: `	s.withLock(func() { h.id = id })
`,
		new: `	s.withLock(func() {
		if h.id == "" {
			h.id = id
		}
		id = h.id
	})
`,
		test: "test/stores/zookeeper TestLateBreakLeavesNewGrantOfSameOwner",
	})
	add(mutant{
		rule: "an anchor that lost its lock is removed",
		file: "zklock/hold.go",
		old:  `	if h.node != "" && h.session == s.sessionID.Load() {`,
		new:  `	if h.session == 1 {`,
		test: "test/stores/zookeeper TestHolderOfRemovedNodeLeavesNewLock",
	})
	add(mutant{
		rule: "a waiter whose container was removed queues again",
		file: "zklock/acquire.go",
		old:  `return queueOf(children), ignore(err, zk.ErrNoNode)`,
		new:  `return queueOf(children), err`,
		test: "test/stores/zookeeper TestWaitersQueueAgainInNewContainer",
	})
	add(mutant{
		rule: "a release without a connection, or whose request is lost, is repeated",
		file: "zklock/release.go",
		old: `		h.released, h.keepPlace, h.lost = true, false, nil // an attempt under way is not granted
		s.expireNowLocked(h)`,
		new:  `		_ = h`,
		test: "test/stores/zookeeper TestReleaseWithoutConnectionIsRepeated|TestLostReleaseIsRepeated",
	})
	add(mutant{
		rule: "the limit for an answer ends with the answer",
		file: "zklock/connector.go",
		old: `			c.awaiting = false
			c.timer.Stop()`,
		new:  `			c.awaiting = false`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "noting a request and starting its limit is one step",
		file: "zklock/connector.go",
		old: `		c.awaiting = true
		c.timer.Reset(c.connector.answerLimit())
	}
	c.mu.Unlock()`,
		new: `		c.awaiting = true
		c.mu.Unlock()
		c.timer.Reset(c.connector.answerLimit())
		c.mu.Lock()
	}
	c.mu.Unlock()`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "the connection to a server that does not answer is closed",
		file: "zklock/connector.go",
		old: `		c.timer.Reset(c.connector.answerLimit())
`,
		new:  ``,
		test: "test/stores/zookeeper TestUnlockUsesNewConnectionWhenOldOneHangs",
	})
	add(mutant{
		rule: "requests for the leader have a limit of their own",
		file: "zklock/connector.go",
		old:  `time.AfterFunc(c.answerLimit(), func() { _ = conn.Close() }).Stop`,
		new:  `time.AfterFunc(c.answerLimit(), func() { _ = conn.RemoteAddr() }).Stop`,
		test: "test/stores/zookeeper TestCutOffFollowerIsLeft",
	})
	add(mutant{
		rule: "a renewal does not take the node of another holder for its own",
		file: "zklock/renew.go",
		old:  `path.Base(p) == unfairNode && tokenOf(stat.Czxid) != token {`,
		new:  `path.Base(p) == unfairNode && tokenOf(stat.Czxid) < token {`,
		test: "test/stores/zookeeper TestLateRenewalReportsLoss/unfair",
	})
	add(mutant{
		rule: "a renewal checks that the node exists",
		file: "zklock/renew.go",
		old: `	case errors.Is(err, zk.ErrNoNode):
		if current`,
		new: `	case errors.Is(err, zk.ErrBadVersion):
		if current`,
		test: "test/stores/zookeeper TestLateRenewalReportsLoss/fair",
	})
	add(mutant{
		rule: "a renewal on a new connection reads the node again",
		file: "zklock/renew.go",
		old:  `watched || h.watchedBy == s.connections.Load()`,
		new:  `watched || h.watchedBy != 0`,
		test: "test/stores/zookeeper TestRenewalReadsNodeOnNewConnection|TestReplacedNodesAreNoticedAfterReconnection",
	})
	add(mutant{
		rule: "the loss of a broken lock is reported",
		file: "zklock/watch.go",
		old:  `if removed && !h.leaving {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestBreakReportsLoss",
	})
	add(mutant{
		rule: "the loss of a lock whose session ended is reported",
		file: "zklock/session.go",
		old: `		s.nodeLostLocked(h)
		clear`,
		new:  `		clear`,
		test: "test/stores/zookeeper TestSessionEndReportsLossAndWaitersGoOn",
	})
	add(mutant{
		rule: "Break compares the token",
		file: "zklock/release.go",
		old: `		case tokenOf(stat.Czxid) != token:
		case c.node`,
		new: `		case stat.Czxid == 0:
		case c.node`,
		test: "test/stores/zookeeper TestConformance/single/fair/break-token",
	})
	add(mutant{
		rule: "Release compares the token",
		file: "zklock/release.go",
		old: `	if grant.Token != 0 && grant.Token != h.token {
		s.mu.Unlock()`,
		new: `	if false {
		s.mu.Unlock()`,
		test: "test/stores/zookeeper TestConformance/single/fair/release-token",
	})
	add(mutant{
		rule: "a renewal starts the TTL again",
		file: "zklock/renew.go",
		old:  `			s.setExpiryLocked(h, h.ttl)`,
		new:  ``,
		test: "test/stores/zookeeper TestConformance/single/fair/renew-extends",
	})
	add(mutant{
		rule: "a lock that is not renewed expires",
		file: "zklock/janitor.go",
		old:  `		s.backgroundLocked(func(ctx context.Context) { s.expire(ctx, h) })`,
		new:  `		s.backgroundLocked(func(context.Context) {})`,
		test: "test/stores/zookeeper TestConformance/single/fair/expiry$",
	})
	add(mutant{
		rule: "a position that is known without a request is trusted for a moment",
		file: "zklock/position.go",
		old:  `known && age < s.sessionTimeout()/proofParts`,
		new:  `known`,
		test: "test/stores/zookeeper TestWaiterOfRemovedNodeIsNotGranted",
	})
	add(mutant{
		rule: "a grant promises less than the session's timeout",
		file: "zklock/connector.go",
		old:  `c.sessionTimeout()*3/4-age`,
		new:  `c.sessionTimeout()-age`,
		test: "test/stores/zookeeper TestGrantPromisesNegotiatedTimeout",
	})
	add(mutant{
		rule: "a request that the follower has not reported does not prolong the session",
		file: "zklock/connector.go",
		old:  `conn.lastSent(confirmed-timeout/4)`,
		new:  `conn.lastSent(confirmed)`,
		test: "zklock TestSilenceShortensPromise",
	})
	add(mutant{
		rule: "a node of an earlier session is not adopted",
		file: "zklock/create.go",
		old:  `if stat.EphemeralOwner != session || !s.adopt(`,
		new:  `if !s.adopt(`,
		test: "test/stores/zookeeper TestNodeOfOldSessionIsNotAdopted",
	})
	add(mutant{
		rule: "a creation without an answer is resolved",
		file: "zklock/create.go",
		old: `	h.unconfirmed = !isOutcomeKnown(err)
`,
		new: `	h.unconfirmed = false
`,
		test: "test/stores/zookeeper TestLostCreationAnswerFindsNode",
	})
	add(mutant{
		rule: "a lock is granted at once only without other contenders",
		file: "zklock/create.go",
		old:  `alone := int(container.NumChildren) == len(nodes);`,
		new:  `alone := int(container.NumChildren) >= len(nodes);`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "lock-0 yields to a queue",
		file: "zklock/acquire.go",
		old:  `		others = queue[1:]`,
		new:  `		others = queue[:0]`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "a number that several nodes have is no place",
		file: "zklock/create.go",
		old:  `if !hasUniqueNumber(node) {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestSequenceNumbersRestart",
	})
	add(mutant{
		rule: "a waiter that watches only the nearest node asks when that is removed",
		file: "zklock/position.go",
		old:  `p.first = p.decisive && len(p.ahead) == 0`,
		new:  `p.first = len(p.ahead) == 0`,
		test: "zklock TestPositionBehindMany",
	})
	add(mutant{
		rule: "an attempt that does not wait looks before it creates a node",
		file: "zklock/acquire.go",
		old:  `if s.opts.Order == Fair && !s.keepsNode(h) {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestRefusedTryCreatesNothing",
	})
	add(mutant{
		rule: "a refused attempt that does not wait leaves no node",
		file: "zklock/acquire.go",
		old:  `	if !s.keepsNode(h) {`,
		new:  `	if false {`,
		test: "test/stores/zookeeper TestOneOfRacingTriesWins/exclusive",
	})
	add(mutant{
		rule: "data of other programs in a container stay",
		file: "zklock/create.go",
		old:  `Data: data, Version: stat.Version}`,
		new:  `Version: stat.Version}`,
		test: "test/stores/zookeeper TestContainerDataIsKept",
	})
	add(mutant{
		rule: "the removal of a writer of Curator proves nothing: it may have become a reader",
		file: "zklock/position.go",
		old:  `(shared || !strings.Contains(c.node, writeBase))`,
		new:  `(shared || !strings.Contains(c.node, writeBase) || true)`,
		test: "test/stores/zookeeper TestWriterThatBecomesReaderIsWaitedFor",
	})
	add(mutant{
		rule: "the first waiter for a permit is admitted when fewer leases than the limit are before its own",
		file: "zklock/permit.go",
		old:  `	case leasesAhead >= h.mode.Limit:`,
		new:  `	case leasesAhead > h.mode.Limit:`,
		test: "test/stores/zookeeper TestPermitsOfCuratorCount",
	})
	add(mutant{
		rule: "a waiter that a watch has found admitted keeps its permit",
		file: "zklock/permit.go",
		old:  `case leaseNode != "" && leaseNode == h.admitted, placeNode`,
		new:  `case placeNode`,
		test: "test/stores/zookeeper TestWatchKeepsItsPermit",
	})
	add(mutant{
		rule: "a lease node whose number is not unique is no permit",
		file: "zklock/create.go",
		old:  `if !hasUniqueNumber(node) {`,
		new:  `if !hasUniqueNumber(node) && req.Mode.Limit == 0 {`,
		test: "test/stores/zookeeper TestNumbersOfSemaphoreRestart",
	})
	add(mutant{
		rule: "the removal of a writer's companion does not prove a downgrade",
		file: "zklock/position.go",
		old: `			p.decisive = false
`,
		new:  ``,
		test: "test/stores/zookeeper TestRemovedCompanionIsNoDowngrade",
	})
	add(mutant{
		rule: "a waiter is not ended by a request in another mode that is about to withdraw",
		file: "zklock/position.go",
		old:  `if h.waited && time.Since(h.mismatch.since) < withdrawLimit {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestWaiterOutlivesMismatch",
	})
	add(mutant{
		rule: "a release after a downgrade without an answer removes whichever companion there is",
		file: "zklock/downgrade.go",
		old: `			h.extraNodes = []string{writer, reader} // if the request is unanswered, a release removes both
`,
		new:  ``,
		test: "test/stores/zookeeper TestDowngradeKeepsNode",
	})
	add(mutant{
		rule: "Close reports the loss of locks before it ends the session",
		file: "zklock/zklock.go",
		old:  `reports.Go(h.lost)`,
		new:  `_ = h.lost`,
		test: "test/stores/zookeeper TestConformance/single",
	})
}
