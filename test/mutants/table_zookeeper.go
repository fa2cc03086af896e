package main

func init() {
	add(mutant{
		rule: "a granted lock is not taken for one that is being removed",
		file: "zklock/acquire.go",
		old:  `a.granted, a.queued, a.leaving = true, false, false`,
		new:  `a.granted, a.queued = true, false`,
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
		rule: "the version of a container proves nothing without the anchor",
		file: "zklock/release.go",
		old: `	err := s.deleteWithAnchor(container, anchorName(id), node, version)
`,
		new: `	_ = s.deleteAnchor(container, anchorName(id))
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
		old:  `if !exists || tokenOf(stat.Czxid) != a.token {`,
		new:  `if !exists || tokenOf(stat.Czxid) < a.token {`,
		test: "test/stores/zookeeper TestStaleHolderIsNotGrantedAgain",
	})
	add(mutant{
		rule: "Break removes a node without an ID only while its container is the same",
		file: "zklock/release.go",
		old:  `head != unfairNode && !hasID(head)`,
		new:  `false`,
		test: "test/stores/zookeeper TestLateBreakLeavesNewLock",
	})
	add(mutant{
		rule: "each node has an ID of its own",
		file: "zklock/create.go",
		old: `	s.locked(func() { a.id = id })
`,
		new: `	s.locked(func() {
		if a.id == "" {
			a.id = id
		}
		id = a.id
	})
`,
		test: "test/stores/zookeeper TestLateBreakLeavesNewGrantOfSameOwner",
	})
	add(mutant{
		rule: "an anchor that lost its lock is removed",
		file: "zklock/acquisition.go",
		old:  `	if a.node == unfairNode && a.session == s.session.Load() {`,
		new:  `	if a.session == 1 {`,
		test: "test/stores/zookeeper TestHolderOfRemovedNodeLeavesNewLock",
	})
	add(mutant{
		rule: "a waiter whose container was removed queues again",
		file: "zklock/acquire.go",
		old:  `return queueOf(children), unless(err, zk.ErrNoNode)`,
		new:  `return queueOf(children), err`,
		test: "test/stores/zookeeper TestWaitersQueueAgainInNewContainer",
	})
	add(mutant{
		rule: "a release without a connection, or whose request is lost, is repeated",
		file: "zklock/release.go",
		old: `		s.releaseLater(&grant)
`,
		new:  ``,
		test: "test/stores/zookeeper TestReleaseWithoutConnectionIsRepeated|TestLostReleaseIsRepeated",
	})
	add(mutant{
		rule: "the limit for an answer ends with the answer",
		file: "zklock/conn.go",
		old: `			c.owed = false
			c.timer.Stop()`,
		new:  `			c.owed = false`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "noting a request and starting its limit is one step",
		file: "zklock/conn.go",
		old: `		c.owed = true
		c.timer.Reset(min(c.connector.sessionTimeout()/4, answerLimit))
	}
	c.mu.Unlock()`,
		new: `		c.owed = true
		c.mu.Unlock()
		c.timer.Reset(min(c.connector.sessionTimeout()/4, answerLimit))
		c.mu.Lock()
	}
	c.mu.Unlock()`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "the connection to a server that does not answer is closed",
		file: "zklock/conn.go",
		old: `		c.timer.Reset(min(c.connector.sessionTimeout()/4, answerLimit))
`,
		new:  ``,
		test: "test/stores/zookeeper TestLostServerIsUnreachable/hangs",
	})
	add(mutant{
		rule: "a renewal does not take the node of another holder for its own",
		file: "zklock/renew.go",
		old:  `errors.Is(err, zk.ErrNoNode), err == nil && tokenOf(stat.Czxid) != token:`,
		new:  `errors.Is(err, zk.ErrNoNode), err == nil && tokenOf(stat.Czxid) < token:`,
		test: "test/stores/zookeeper TestLateRenewalReportsLoss/unfair",
	})
	add(mutant{
		rule: "a renewal checks that the node exists",
		file: "zklock/renew.go",
		old:  `	case errors.Is(err, zk.ErrNoNode), err == nil`,
		new:  `	case errors.Is(err, zk.ErrBadVersion), err == nil`,
		test: "test/stores/zookeeper TestLateRenewalReportsLoss/fair",
	})
	add(mutant{
		rule: "a renewal on a new connection reads the node again",
		file: "zklock/renew.go",
		old:  `return a.guarded == s.connections.Load()`,
		new:  `return a.guarded != 0`,
		test: "test/stores/zookeeper TestRenewalReadsNodeOnNewConnection|TestReplacedNodesAreNoticedAfterReconnection",
	})
	add(mutant{
		rule: "the loss of a broken lock is reported",
		file: "zklock/watch.go",
		old:  `if event.Type == zk.EventNodeDeleted && !a.leaving {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestBreakReportsLoss",
	})
	add(mutant{
		rule: "the loss of a lock whose session ended is reported",
		file: "zklock/session.go",
		old: `		s.nodeVanishedLocked(a)
		clear`,
		new:  `		clear`,
		test: "test/stores/zookeeper TestSessionEndReportsLossAndWaitersGoOn",
	})
	add(mutant{
		rule: "Break compares the token",
		file: "zklock/release.go",
		old: `	case tokenOf(stat.Czxid) != token:
		return zk.ErrNoNode
	case head`,
		new: `	case stat.Czxid == 0:
		return zk.ErrNoNode
	case head`,
		test: "test/stores/zookeeper TestConformance/single/fair/break-token",
	})
	add(mutant{
		rule: "Release compares the token",
		file: "zklock/release.go",
		old: `	if grant.Token != 0 && grant.Token != a.token {
		s.mu.Unlock()`,
		new: `	if false {
		s.mu.Unlock()`,
		test: "test/stores/zookeeper TestConformance/single/fair/release-token",
	})
	add(mutant{
		rule: "a renewal starts the TTL again",
		file: "zklock/renew.go",
		old:  `			s.setDeadlineLocked(a, a.ttl)`,
		new:  ``,
		test: "test/stores/zookeeper TestConformance/single/fair/renew-extends",
	})
	add(mutant{
		rule: "a lock that is not renewed expires",
		file: "zklock/acquisition.go",
		old:  `		s.backgroundLocked(func(ctx context.Context) { s.expire(ctx, a) })`,
		new:  `		s.backgroundLocked(func(context.Context) {})`,
		test: "test/stores/zookeeper TestConformance/single/fair/expiry$",
	})
	add(mutant{
		rule: "a position that is known without a request is trusted for a moment",
		file: "zklock/position.go",
		old:  `known && age < s.sessionTimeout()/16`,
		new:  `known`,
		test: "test/stores/zookeeper TestWaiterOfRemovedNodeIsNotGranted",
	})
	add(mutant{
		rule: "a grant promises less than the session's timeout",
		file: "zklock/session.go",
		old:  `c.sessionTimeout()*3/4-age`,
		new:  `c.sessionTimeout()-age`,
		test: "test/stores/zookeeper TestGrantPromisesNegotiatedTimeout",
	})
	add(mutant{
		rule: "a node of an earlier session is not adopted",
		file: "zklock/create.go",
		old:  `case stat.EphemeralOwner == session && s.adopt(`,
		new:  `case s.adopt(`,
		test: "test/stores/zookeeper TestNodeOfOldSessionIsNotAdopted",
	})
	add(mutant{
		rule: "a creation without an answer is resolved",
		file: "zklock/create.go",
		old: `	a.unknown = isUnknown(err)
`,
		new: `	a.unknown = false
`,
		test: "test/stores/zookeeper TestLostCreationAnswerFindsNode",
	})
	add(mutant{
		rule: "a lock is granted at once only without other contenders",
		file: "zklock/create.go",
		old:  `if container.NumChildren == int32(nodes) {`,
		new:  `if container.NumChildren >= int32(nodes) {`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "lock-0 yields to a queue",
		file: "zklock/acquire.go",
		old:  `case s.opts.Order == Unfair && !a.granted && len(queue) > 1:`,
		new:  `case false:`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "a number that several nodes have is no place",
		file: "zklock/create.go",
		old:  `if !hasUniqueNumber(node) {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestSequenceNumbersBeginAgain",
	})
	add(mutant{
		rule: "a waiter that watches only the nearest node asks when that is removed",
		file: "zklock/position.go",
		old:  `p.first = p.all && len(p.ahead) == 0`,
		new:  `p.first = len(p.ahead) == 0`,
		test: "zklock TestPositionBehindMany",
	})
	add(mutant{
		rule: "a refused attempt that does not wait leaves no node",
		file: "zklock/acquire.go",
		old: `	if s.keepsNode(a) {
		removed <- nil`,
		new: `	if true {
		removed <- nil`,
		test: "test/stores/zookeeper TestConformance/single/fair/fair-no-queue",
	})
	add(mutant{
		rule: "data of other programs in a container stay",
		file: "zklock/create.go",
		old:  `		return data, stat.Version, nil`,
		new:  `		return nil, stat.Version, nil`,
		test: "test/stores/zookeeper TestContainerDataIsKept",
	})
}
