package main

func init() {
	add(mutant{
		rule: "a lock that was granted is not taken for one that is being removed",
		file: "zklock/acquire.go",
		old:  `c.granted, c.queued, c.leaving = true, false, false`,
		new:  `c.granted, c.queued = true, false`,
		test: "test/stores/zookeeper TestGrantAfterFailedRemoval",
	})
	add(mutant{
		rule: "a look without the leader's confirmation grants nothing",
		file: "zklock/acquire.go",
		old:  `if err := <-confirmed; err != nil {`,
		new:  `if err := error(nil); err != nil {`,
		test: "test/stores/zookeeper TestServerWithoutLeader",
	})
	add(mutant{
		rule: "a reconnection wakes waiters",
		file: "zklock/events.go",
		old: `	s.setUp(true)
	wakeAll(waiters)`,
		new: `	s.setUp(true)
	_ = waiters`,
		test: "test/stores/zookeeper TestReconnectionWakes",
	})
	add(mutant{
		rule: "the version of a container says nothing without the anchor",
		file: "zklock/release.go",
		old: `	err := s.removeBoth(parent, anchorOf(id), node, version)
`,
		new: `	_ = s.removeAnchor(parent, anchorOf(id))
	answers, err := s.conn.Multi(&zk.CheckVersionRequest{Path: parent, Version: version}, &zk.DeleteRequest{Path: parent + "/" + node, Version: anyVersion})
	err = firstError(answers, err)
`,
		test: "test/stores/zookeeper TestStaleHolderLeavesNewLock",
	})
	add(mutant{
		rule: "an anchor says nothing without the version of the container",
		file: "zklock/release.go",
		old: `		&zk.CheckVersionRequest{Path: parent, Version: version},
`,
		new:  ``,
		test: "test/stores/zookeeper TestNodeRemovedByHand",
	})
	add(mutant{
		rule: "a removal that looks first compares the token",
		file: "zklock/release.go",
		old:  `if !there || uint64(stat.Czxid) != token {`,
		new:  `if !there || uint64(stat.Czxid) < token {`,
		test: "test/stores/zookeeper TestStaleHolderLeavesNewLock",
	})
	add(mutant{
		rule: "lock-0 of another holder is not taken for one's own",
		file: "zklock/acquire.go",
		old:  `return there && uint64(stat.Czxid) == c.token, err`,
		new:  `return there && uint64(stat.Czxid) >= c.token, err`,
		test: "test/stores/zookeeper TestStaleHolderIsNotGrantedAgain",
	})
	add(mutant{
		rule: "Break removes a node without an ID only while its container is the same",
		file: "zklock/release.go",
		old:  `head != single && !protected(head)`,
		new:  `false`,
		test: "test/stores/zookeeper TestLateBreak",
	})
	add(mutant{
		rule: "each node has an ID of its own",
		file: "zklock/acquire.go",
		old: `	c.id = id
`,
		new: `	if c.id == "" {
		c.id = id
	}
	id = c.id
`,
		test: "test/stores/zookeeper TestLateBreakOfSameOwner",
	})
	add(mutant{
		rule: "an anchor that lost its lock is removed",
		file: "zklock/events.go",
		old:  `	if c.node == single && s.live`,
		new:  `	if false && s.live`,
		test: "test/stores/zookeeper TestNodeRemovedByHand",
	})
	add(mutant{
		rule: "a waiter whose container was removed queues again",
		file: "zklock/acquire.go",
		old:  `if err != nil && !errors.Is(err, zk.ErrNoNode) { // without`,
		new:  `if err != nil { // without`,
		test: "test/stores/zookeeper TestContainerRemoved",
	})
	add(mutant{
		rule: "a release without a connection is made up for",
		file: "zklock/release.go",
		old: `		s.releaseLater(&grant)
`,
		new:  ``,
		test: "test/stores/zookeeper TestReleaseWithoutConnection",
	})
	add(mutant{
		rule: "a release whose request is lost is made up for",
		file: "zklock/release.go",
		old: `		s.giveLater(c)
		return explain("releasing a lock", err)`,
		new:  `		return explain("releasing a lock", err)`,
		test: "test/stores/zookeeper TestReleaseLostOnItsWay",
	})
	add(mutant{
		rule: "a limit for answers ends with the answer",
		file: "zklock/line.go",
		old: `			l.owed = false
			l.timer.Stop()`,
		new:  `			l.owed = false`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "noting a request and starting its limit is one step",
		file: "zklock/line.go",
		old: `		l.owed = true
		l.timer.Reset(l.patience())
	}
	l.mu.Unlock()`,
		new: `		l.owed = true
		l.mu.Unlock()
		l.timer.Reset(l.patience())
		l.mu.Lock()
	}
	l.mu.Unlock()`,
		test: "zklock TestIdleConnectionHasNoLimit",
	})
	add(mutant{
		rule: "a server that does not answer is hung up on",
		file: "zklock/line.go",
		old: `		l.timer.Reset(l.patience())
`,
		new:  ``,
		test: "test/stores/zookeeper TestServerGone/hangs",
	})
	add(mutant{
		rule: "a renewal does not take the node of another holder for its own",
		file: "zklock/renew.go",
		old:  `errors.Is(err, zk.ErrNoNode), err == nil && uint64(stat.Czxid) != token:`,
		new:  `errors.Is(err, zk.ErrNoNode), err == nil && uint64(stat.Czxid) < token:`,
		test: "test/stores/zookeeper TestLateRenewal/unfair",
	})
	add(mutant{
		rule: "a renewal looks whether the node is there",
		file: "zklock/renew.go",
		old:  `	case errors.Is(err, zk.ErrNoNode), err == nil`,
		new:  `	case errors.Is(err, zk.ErrBadVersion), err == nil`,
		test: "test/stores/zookeeper TestLateRenewal/fair",
	})
	add(mutant{
		rule: "a holder looks at its node again on a new connection",
		file: "zklock/renew.go",
		old:  `c.guarded == s.connection, c.path()`,
		new:  `c.guarded != 0, c.path()`,
		test: "test/stores/zookeeper TestHoldersLookAgain",
	})
	add(mutant{
		rule: "a holder whose lock is broken is told",
		file: "zklock/events.go",
		old:  `if event.Type == zk.EventNodeDeleted && !c.leaving {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestBreakIsNoticed",
	})
	add(mutant{
		rule: "a holder whose session ended is told",
		file: "zklock/events.go",
		old:  `			lost = append(lost, f)`,
		new:  `			_ = f`,
		test: "test/stores/zookeeper TestSessionEndsWhileHeldAndWaiting",
	})
	add(mutant{
		rule: "Break compares the token",
		file: "zklock/release.go",
		old: `	case uint64(stat.Czxid) != token:
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
		old: `	if grant.Token != 0 && grant.Token != c.token {
		s.mu.Unlock()`,
		new: `	if false {
		s.mu.Unlock()`,
		test: "test/stores/zookeeper TestConformance/single/fair/release-token",
	})
	add(mutant{
		rule: "a renewal starts the TTL again",
		file: "zklock/renew.go",
		old:  `			s.lastsLocked(c, c.asked)`,
		new:  ``,
		test: "test/stores/zookeeper TestConformance/single/fair/renew-extends",
	})
	add(mutant{
		rule: "a lock that is not renewed expires",
		file: "zklock/claim.go",
		old:  `		go s.later(func(ctx context.Context) { s.expire(ctx, c) })`,
		new:  `		go s.later(func(context.Context) {})`,
		test: "test/stores/zookeeper TestConformance/single/fair/expiry-late",
	})
	add(mutant{
		rule: "what is known of a place without asking is forgotten soon",
		file: "zklock/position.go",
		old:  `known && age < s.sessionTimeout()/16`,
		new:  `known`,
		test: "test/stores/zookeeper TestPlaceRemoved",
	})
	add(mutant{
		rule: "a grant promises less than the session's timeout",
		file: "zklock/session.go",
		old:  `s.sessionTimeout()*3/4-age`,
		new:  `s.sessionTimeout()-age`,
		test: "test/stores/zookeeper TestTimeoutIsNegotiated",
	})
	add(mutant{
		rule: "a node of an earlier session is not ours",
		file: "zklock/acquire.go",
		old:  `case stat.EphemeralOwner == live && s.own(`,
		new:  `case s.own(`,
		test: "test/stores/zookeeper TestNodeOfAnOldSession",
	})
	add(mutant{
		rule: "a node whose creation was not answered is looked for",
		file: "zklock/acquire.go",
		old: `	c.doubt = inDoubt(err)
`,
		new: `	c.doubt = false
`,
		test: "test/stores/zookeeper TestLostAnswerToACreation",
	})
	add(mutant{
		rule: "a lock is granted at once only where nobody else is",
		file: "zklock/acquire.go",
		old:  `if parent.NumChildren == int32(len(nodes)) {`,
		new:  `if parent.NumChildren >= int32(len(nodes)) {`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "lock-0 gives way to those who queue",
		file: "zklock/acquire.go",
		old:  `case s.order == Unfair && !c.granted && len(queue) > 1:`,
		new:  `case false:`,
		test: "test/stores/zookeeper TestOrdersExcludeEachOther",
	})
	add(mutant{
		rule: "a number that others have too is no place",
		file: "zklock/acquire.go",
		old:  `if !orderly(path.Base(created)) {`,
		new:  `if false {`,
		test: "test/stores/zookeeper TestNumbersAreUsedUp",
	})
	add(mutant{
		rule: "who watches only the nearest looks when it is gone",
		file: "zklock/position.go",
		old:  `p.first = p.all && len(p.ahead) == 0`,
		new:  `p.first = len(p.ahead) == 0`,
		test: "zklock TestPositionBehindMany",
	})
	add(mutant{
		rule: "one that is refused and does not wait leaves no node",
		file: "zklock/acquire.go",
		old: `	if s.keeps(c) {
		removed <- nil`,
		new: `	if true {
		removed <- nil`,
		test: "test/stores/zookeeper TestConformance/single/fair/fair-no-queue",
	})
	add(mutant{
		rule: "what others have stored in a container stays",
		file: "zklock/parents.go",
		old:  `		return data, stat.Version, nil`,
		new:  `		return nil, stat.Version, nil`,
		test: "test/stores/zookeeper TestDataOfTheContainer",
	})
}
