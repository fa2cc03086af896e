package zookeeper

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

var limitOne = driver.Mode{Limit: 1}

// otherID begins the name of a node of another program.
const otherID = "_c_11111111-2222-3333-4444-555555555555-"

// queuedRequest returns a request that will come again.
func queuedRequest(mode driver.Mode, name string) driver.Request {
	req := requestIn(mode, name)
	req.Queue = true
	return req
}

// mustWait demands that a request is refused for now.
func mustWait(t testing.TB, store driver.Store, req driver.Request) {
	t.Helper()
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire(%q): %v; want ErrHeld", req.Name, err)
	}
}

// startWatch makes a request that of a waiter, and returns its notifications.
func startWatch(t testing.TB, store driver.Watcher, req driver.Request) (woken <-chan struct{}) {
	t.Helper()
	wakes := make(chan struct{}, 1)
	stop, err := store.Watch(t.Context(), req, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return wakes
}

// TestLaterLeaseTakesNoPermit: a lease that is created after its own, by an attempt that will be
// refused, keeps neither a TryLock nor a waiter from a free permit.
func TestLaterLeaseTakesNoPermit(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	two := driver.Mode{Limit: 2}

	acquire(t, other, requestIn(two, "try"))
	created := make(chan struct{})
	p.OnRequest(acquires("try"), func(*proxy.Conn) { // it looks for a free permit before
		p.OnRequest(sends(opChildren, "/try/leases"), func(*proxy.Conn) {
			defer close(created)
			if _, err := conn.Create("/try/leases/"+otherID+"lease-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)); err != nil {
				t.Error(err)
			}
		})
	})
	acquire(t, store, requestIn(two, "try"))
	happens(t, created, "the later lease")

	holder := acquire(t, other, requestIn(limitOne, "wait"))
	req := queuedRequest(limitOne, "wait")
	mustWait(t, store, req)
	createSequential(t, conn, "/wait/leases/"+otherID+"lease-")
	release(t, other, holder)
	acquire(t, store, req)
}

// TestWatchKeepsItsPermit: Watch finds that the waiter has a permit. The waiter gets it, although
// another waiter is in the queue by now.
func TestWatchKeepsItsPermit(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	for name, prepare := range map[string]func(first, next driver.Request) (woken <-chan struct{}){
		"free": func(first, next driver.Request) <-chan struct{} {
			woken := startWatch(t, store, first)
			mustWait(t, other, next)
			return woken
		},
		"queued": func(first, next driver.Request) <-chan struct{} {
			holder := acquire(t, other, requestIn(limitOne, "queued"))
			mustWait(t, store, first)
			mustWait(t, other, next)
			release(t, other, holder)
			return startWatch(t, store, first)
		},
	} {
		first, next := queuedRequest(limitOne, name), queuedRequest(limitOne, name)
		happens(t, prepare(first, next), "the wake-up")
		grant := acquire(t, store, first)
		mustWait(t, other, next)
		release(t, store, grant)
		release(t, other, acquire(t, other, next))
	}
}

// TestLostLeaseOfNextWaiter: a waiter becomes the first, and the answer to the creation of its
// lease is lost. It finds the lease, and leaves none behind that would take a permit from the
// others.
func TestLostLeaseOfNextWaiter(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	for _, name := range []string{"n0", "n1", "n2", "n3", "n4"} { // the answer is lost before or after that of the leader
		holder := acquire(t, other, requestIn(limitOne, name))
		first, next := queuedRequest(limitOne, name), queuedRequest(limitOne, name)
		mustWait(t, other, first)
		mustWait(t, store, next)
		if err := other.Release(t.Context(), driver.Grant{Name: name, Owner: first.Owner}); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("Release of a waiter: %v; want ErrNotHeld", err)
		}
		lost := p.LoseReply(sends(opMulti, name+"/leases/_c_"), true)
		mustWait(t, store, next)
		happens(t, lost, "the lost answer")
		if leases := nodeKinds(t, conn, name+"/leases"); len(leases) != 2 {
			t.Errorf("%s: the leases are %q; want one of the holder and one of the waiter", name, leases)
		}
		release(t, other, holder)
		release(t, store, acquire(t, store, next))
		if left := slices.Concat(contenders(t, conn, name), nodeKinds(t, conn, name+"/leases"), nodeKinds(t, conn, name+"/locks")); len(left) > 0 {
			t.Errorf("%s: after all releases the nodes are %q", name, left)
		}
	}
}

// TestTokensOfPermitsRise: of two waiters for one permit, the one that asked first takes its place
// last. Its token is larger all the same, and the holder is known by it.
func TestTokensOfPermitsRise(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	last := acquire(t, other, requestIn(limitOne, "n"))
	slow, fast := queuedRequest(limitOne, "n"), queuedRequest(limitOne, "n")
	overtaken := p.OnRequest(sends(opMulti, "/n/locks/_c_"), func(*proxy.Conn) {
		if _, err := other.Acquire(t.Context(), fast); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("a second waiter: %v; want ErrHeld", err)
		}
	})
	mustWait(t, store, slow)
	happens(t, overtaken, "the second waiter")
	for _, next := range []struct {
		store driver.Store
		req   driver.Request
	}{{other, fast}, {store, slow}} {
		release(t, other, last)
		grant := acquire(t, next.store, next.req)
		if grant.Token <= last.Token {
			t.Errorf("token %d after %d", grant.Token, last.Token)
		}
		last = grant
	}
	info, found, err := other.Find(t.Context(), "n")
	if err != nil || !found || info.Token != last.Token || info.Holder != slow.Holder {
		t.Errorf("Find returns %+v, %v, %v; want token %d of %+v", info, found, err, last.Token, slow.Holder)
	}
	_, err = other.Acquire(t.Context(), requestIn(limitOne, "n"))
	if held, ok := errors.AsType[*driver.HeldError](err); !ok || held.Token != last.Token || held.Mode != limitOne {
		t.Errorf("a refused attempt: %v; want a HeldError with token %d", err, last.Token)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{last}); errs != nil {
		t.Errorf("Renew: %v", errs)
	}
	if err := other.Break(t.Context(), "n", last.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	release(t, other, acquire(t, other, requestIn(limitOne, "n")))
}

// TestRemovedLeaseEndsPermit: an operator removes only the lease of a permit. The holder learns it,
// and nothing is left.
func TestRemovedLeaseEndsPermit(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store := open(t, server.URL())
	for name, renewed := range map[string]bool{"renewed": true, "new": false} {
		req := requestIn(limitOne, name)
		lost := make(chan struct{})
		req.Lost = func() { close(lost) }
		grant := acquire(t, store, req)
		renew := func() error { return errors.Join(store.Renew(t.Context(), []driver.Grant{grant})...) }
		if renewed {
			if err := renew(); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Delete("/"+name+"/leases/"+childrenOf(t, conn, name+"/leases")[0], -1); err != nil {
			t.Fatal(err)
		}
		if renewed {
			happens(t, lost, "the call of Lost")
		}
		if err := renew(); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Renew without a lease: %v; want ErrNotHeld", name, err)
		}
		eventually(t, "its other node is gone", func() bool { return len(contenders(t, conn, name)) == 0 })
		release(t, store, acquire(t, store, requestIn(limitOne, name)))
	}
}

// TestRemovedCompanionIsNoDowngrade: an operator removes only the writer's node of an exclusive
// holder. A shared waiter, which waits for that node, is not granted the lock.
func TestRemovedCompanionIsNoDowngrade(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, other := open(t, server.URL()), open(t, server.URL())
	writer := acquire(t, other, request("n"))
	reader := queuedRequest(shared, "n")
	woken := startWatch(t, store, reader)
	mustWait(t, store, reader)
	for _, child := range childrenOf(t, conn, "n") {
		if strings.Contains(child, "__WRIT__") {
			if err := conn.Delete("/n/"+child, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	happens(t, woken, "the wake-up")
	mustWait(t, store, reader)
	release(t, other, writer)
	release(t, store, acquire(t, store, reader))
}

// TestBreakDuringDowngradeLeavesNothing: the holder downgrades after Break has read its nodes.
func TestBreakDuringDowngradeLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	breaker, p := throughProxy(t, server, "")
	holder := open(t, server.URL())
	grant := acquire(t, holder, request("n"))
	downgraded := p.OnRequest(sends(opMulti, "/n/"), func(*proxy.Conn) {
		if err := holder.Downgrade(t.Context(), grant); err != nil {
			t.Errorf("Downgrade: %v", err)
		}
	})
	if err := breaker.Break(t.Context(), "n", grant.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	happens(t, downgraded, "the downgrade")
	if left := childrenOf(t, conn, "n"); len(left) > 0 {
		t.Errorf("after Break the nodes are %q", left)
	}
	if err := breaker.Break(t.Context(), "n", grant.Token); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Break of what was broken: %v; want ErrNotHeld", err)
	}
}

// TestWaiterOutlivesMismatch: the holder releases while a request in another mode, which was
// refused, has not removed its node yet. The waiter behind that node goes on. If the node stays, it
// has the lock, and the waiter gets ErrMode.
func TestWaiterOutlivesMismatch(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, other := open(t, server.URL()), open(t, server.URL())
	for name, test := range map[string]struct {
		mode  driver.Mode
		other string // the name of the other node
	}{
		"lock":      {exclusive, otherID + "2-lock-"},
		"semaphore": {limitOne, otherID + "lock-"},
	} {
		for _, stays := range []bool{false, true} {
			holder := acquire(t, other, requestIn(test.mode, name))
			node := createSequential(t, conn, "/"+name+"/"+test.other)
			req := queuedRequest(test.mode, name)
			woken := startWatch(t, store, req)
			mustWait(t, store, req)
			release(t, other, holder)
			mustWait(t, store, req)
			if !stays {
				if err := conn.Delete(node, -1); err != nil {
					t.Fatal(err)
				}
				release(t, store, acquire(t, store, req))
				continue
			}
			for refused := true; refused; {
				happens(t, woken, "the wake-up")
				_, err := store.Acquire(t.Context(), req)
				refused = errors.Is(err, driver.ErrHeld)
				if !refused && !errors.Is(err, driver.ErrMode) {
					t.Errorf("%s: behind a holder in another mode: %v; want ErrMode", name, err)
				}
			}
			if n := len(contenders(t, conn, name)); n != 1 {
				t.Errorf("%s: %d contenders; want the other one", name, n)
			}
		}
	}
}

// TestPermitsOfCuratorCount: leases of an InterProcessSemaphoreV2 count, wake waiters, are listed
// and can be broken. A waiter has a place in Curator's queue, and no lease unless it is the first.
func TestPermitsOfCuratorCount(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store := open(t, server.URL())
	two := driver.Mode{Limit: 2}
	createContainers(t, conn, "/n", "/n/leases")
	theirs := createSequential(t, conn, "/n/leases/_c_11111111-2222-3333-4444-555555555555-lease-")
	grant := acquire(t, store, requestIn(two, "n"))
	if _, err := store.Acquire(t.Context(), requestIn(two, "n")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a third permit of two: %v; want ErrHeld", err)
	}
	var waiters []driver.Request
	for range 2 {
		req := requestIn(two, "n")
		req.Queue = true
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("a waiter: %v; want ErrHeld", err)
		}
		waiters = append(waiters, req)
	}
	if leases, places := nodeKinds(t, conn, "n/leases"), nodeKinds(t, conn, "n/locks"); len(leases) != 3 || len(places) != 2 {
		t.Errorf("%d leases and %d places; want those of two holders and the first waiter, and two places", len(leases), len(places))
	}
	var broken uint64
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode != two || info.Waiters != 2 {
			t.Errorf("a holder is listed as %+v", info)
		}
		if info.Token != grant.Token {
			broken = info.Token
		}
	}
	if err := store.Break(t.Context(), "n", broken); err != nil {
		t.Errorf("Break of Curator's lease: %v", err)
	}
	if there, _, err := conn.Exists(theirs); err != nil || there {
		t.Errorf("Curator's lease exists after Break: %v, %v", there, err)
	}
	first := acquire(t, store, waiters[0])
	release(t, store, grant)
	second := acquire(t, store, waiters[1])
	release(t, store, first)
	release(t, store, second)
	if left := slices.Concat(contenders(t, conn, "n"), nodeKinds(t, conn, "n/leases"), nodeKinds(t, conn, "n/locks")); len(left) > 0 {
		t.Errorf("after all releases the nodes are %q", left)
	}
}

// TestLostAnswersOfPermits: the answers to the creation of a permit's nodes, to taking a place and
// to taking the first waiter's lease are lost. No node is there twice, and none is left.
func TestLostAnswersOfPermits(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	for i, kind := range []string{"1-lock-", "/locks/_c_", "/leases/_c_"} {
		name := "n" + string(rune('0'+i))
		other := open(t, server.URL())
		grant := acquire(t, other, requestIn(limitOne, name))
		lost := p.LoseReply(sends(opMulti, kind), true)
		req := requestIn(limitOne, name)
		req.Queue = true
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: %v; want ErrHeld", kind, err)
		}
		happens(t, lost, "the lost answer")
		nodes, leases, places := contenders(t, conn, name), nodeKinds(t, conn, name+"/leases"), nodeKinds(t, conn, name+"/locks")
		if len(nodes) != 2 || len(leases) != 2 || len(places) != 1 {
			t.Errorf("%s: the nodes are %q, %q and %q; want two, two leases and one place", kind, nodes, leases, places)
		}
		release(t, other, grant)
		release(t, store, acquire(t, store, req))
		left := slices.Concat(contenders(t, conn, name), nodeKinds(t, conn, name+"/leases"), nodeKinds(t, conn, name+"/locks"))
		if len(left) > 0 {
			t.Errorf("%s: after all releases the nodes are %q", kind, left)
		}
	}
}
