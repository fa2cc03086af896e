package zookeeper

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/go-zookeeper/zk"
)

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
	want.Held(t, store, req, "it has to wait")
}

// nothingLeft checks that a name has no holder and no waiter, in no mode.
func nothingLeft(t testing.TB, conn *zk.Conn, name string) {
	t.Helper()
	left := slices.Concat(contenders(t, conn, name), nodeKinds(t, conn, name+"/leases"), nodeKinds(t, conn, name+"/locks"))
	if len(left) > 0 {
		t.Errorf("after all releases the nodes are %q", left)
	}
}

// TestLaterLeaseTakesNoPermit: a lease that is created after its own, by an attempt that will be
// refused, keeps neither a TryLock nor a waiter from a free permit.
func TestLaterLeaseTakesNoPermit(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())

	want.Acquire(t, other, requestIn(two, "try"))
	created := make(chan struct{})
	p.OnRequest(acquires("try"), func(*proxy.Conn) { // it looks for a free permit before
		p.OnRequest(sends(opChildren, "/try/leases"), func(*proxy.Conn) {
			defer close(created)
			if _, err := conn.Create("/try/leases/"+otherID+"lease-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)); err != nil {
				t.Error(err)
			}
		})
	})
	want.Acquire(t, store, requestIn(two, "try"))
	await.Event(t, created, "the later lease")

	holder := want.Acquire(t, other, requestIn(limitOne, "wait"))
	req := queuedRequest(limitOne, "wait")
	mustWait(t, store, req)
	createSequential(t, conn, "/wait/leases/"+otherID+"lease-")
	want.Release(t, other, holder)
	want.Acquire(t, store, req)
}

// TestWatchKeepsItsPermit: Watch finds that the waiter has a permit. The waiter gets it, although
// another waiter is in the queue by now.
func TestWatchKeepsItsPermit(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	for name, prepare := range map[string]func(first, next driver.Request) (woken <-chan struct{}){
		"free": func(first, next driver.Request) <-chan struct{} {
			woken := want.Watch(t, store, first)
			mustWait(t, other, next)
			return woken
		},
		"queued": func(first, next driver.Request) <-chan struct{} {
			holder := want.Acquire(t, other, requestIn(limitOne, "queued"))
			mustWait(t, store, first)
			mustWait(t, other, next)
			want.Release(t, other, holder)
			return want.Watch(t, store, first)
		},
	} {
		first, next := queuedRequest(limitOne, name), queuedRequest(limitOne, name)
		await.Event(t, prepare(first, next), "the wake-up")
		grant := want.Acquire(t, store, first)
		mustWait(t, other, next)
		want.Release(t, store, grant)
		want.Release(t, other, want.Acquire(t, other, next))
	}
}

// TestTokensOfPermitsRise: of two waiters for one permit, the one that asked first takes its place
// last. Its token is larger all the same, and the holder is known by it.
func TestTokensOfPermitsRise(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	last := want.Acquire(t, other, requestIn(limitOne, "n"))
	slow, fast := queuedRequest(limitOne, "n"), queuedRequest(limitOne, "n")
	overtaken := p.OnRequest(sends(opMulti, "/n/locks/_c_"), func(*proxy.Conn) {
		want.Held(t, other, fast, "the permit is taken")
	})
	mustWait(t, store, slow)
	await.Event(t, overtaken, "the second waiter")
	for _, next := range []struct {
		store driver.Store
		req   driver.Request
	}{{other, fast}, {store, slow}} {
		want.Release(t, other, last)
		grant := want.Acquire(t, next.store, next.req)
		want.Larger(t, grant.Token, last.Token)
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
	want.Renew(t, store, "of what is held", last)
	want.Break(t, other, last)
	want.Release(t, other, want.Acquire(t, other, requestIn(limitOne, "n")))
}

// TestRemovedLeaseEndsPermit: an operator removes only the lease of a permit. The holder learns it,
// and nothing is left.
func TestRemovedLeaseEndsPermit(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store := open(t, server.URL())
	for name, renewed := range map[string]bool{"renewed": true, "new": false} {
		req := requestIn(limitOne, name)
		lost := make(chan struct{})
		req.Lost = func() { close(lost) }
		grant := want.Acquire(t, store, req)
		if renewed {
			want.Renew(t, store, "of what is held", grant)
		}
		want.OK(t, conn.Delete("/"+name+"/leases/"+childrenOf(t, conn, name+"/leases")[0], -1))
		if renewed {
			await.Event(t, lost, "Lost")
		}
		want.Error(t, name+": Renew without a lease", want.RenewError(t, store, grant), driver.ErrNotHeld)
		await.Until(t, "its other node is gone", func() bool { return len(contenders(t, conn, name)) == 0 })
		want.Release(t, store, want.Acquire(t, store, requestIn(limitOne, name)))
	}
}

// TestRemovedCompanionIsNoDowngrade: an operator removes only the writer's node of an exclusive
// holder. A shared waiter, which waits for that node, is not granted the lock.
func TestRemovedCompanionIsNoDowngrade(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	writer := want.Acquire(t, other, request("n"))
	reader := queuedRequest(shared, "n")
	woken := want.Watch(t, store, reader)
	mustWait(t, store, reader)
	for _, child := range childrenOf(t, conn, "n") {
		if strings.Contains(child, "__WRIT__") {
			want.OK(t, conn.Delete("/n/"+child, -1))
		}
	}
	await.Event(t, woken, "the wake-up")
	mustWait(t, store, reader)
	want.Release(t, other, writer)
	want.Release(t, store, want.Acquire(t, store, reader))
}

// TestBreakDuringDowngradeLeavesNothing: the holder downgrades after Break has read its nodes.
func TestBreakDuringDowngradeLeavesNothing(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	breaker, p := throughProxy(t, server, "")
	holder := open(t, server.URL())
	grant := want.Acquire(t, holder, request("n"))
	downgraded := p.OnRequest(sends(opMulti, "/n/"), func(*proxy.Conn) {
		if err := holder.Downgrade(t.Context(), grant); err != nil {
			t.Errorf("Downgrade: %v", err)
		}
	})
	want.Break(t, breaker, grant)
	await.Event(t, downgraded, "the downgrade")
	if left := childrenOf(t, conn, "n"); len(left) > 0 {
		t.Errorf("after Break the nodes are %q", left)
	}
	want.Error(t, "Break of what was broken", breaker.Break(t.Context(), "n", grant.Token), driver.ErrNotHeld)
}

// TestWaiterOutlivesMismatch: the holder releases while a request in another mode, which was
// refused, has not removed its node yet. The waiter behind that node goes on. If the node stays, it
// has the lock, and the waiter gets ErrMode.
func TestWaiterOutlivesMismatch(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	for name, test := range map[string]struct {
		mode  driver.Mode
		other string // the name of the other node
	}{
		"lock":      {exclusive, otherID + "2-lock-"},
		"semaphore": {limitOne, otherID + "lock-"},
	} {
		for _, stays := range []bool{false, true} {
			holder := want.Acquire(t, other, requestIn(test.mode, name))
			node := createSequential(t, conn, "/"+name+"/"+test.other)
			req := queuedRequest(test.mode, name)
			woken := want.Watch(t, store, req)
			mustWait(t, store, req)
			want.Release(t, other, holder)
			mustWait(t, store, req)
			if !stays {
				want.OK(t, conn.Delete(node, -1))
				want.Release(t, store, want.Acquire(t, store, req))
				continue
			}
			for refused := true; refused; {
				await.Event(t, woken, "the wake-up")
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
	server, conn := start(t, servers.ZooKeeper)
	store := open(t, server.URL())
	createContainers(t, conn, "/n", "/n/leases")
	theirs := createSequential(t, conn, "/n/leases/"+otherID+"lease-")
	grant := want.Acquire(t, store, requestIn(two, "n"))
	want.Held(t, store, requestIn(two, "n"), "both permits are taken")
	var waiters []driver.Request
	for range 2 {
		req := queuedRequest(two, "n")
		mustWait(t, store, req)
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
	want.Break(t, store, driver.Grant{Name: "n", Token: broken}) // Curator's lease
	if there, _, err := conn.Exists(theirs); err != nil || there {
		t.Errorf("Curator's lease exists after Break: %v, %v", there, err)
	}
	first := want.Acquire(t, store, waiters[0])
	want.Release(t, store, grant)
	second := want.Acquire(t, store, waiters[1])
	want.Release(t, store, first, second)
	nothingLeft(t, conn, "n")
}

// TestLostAnswersOfPermits: the answers to the creation of a permit's nodes, to taking a place and
// to taking the first waiter's lease are lost. No node is there twice, and none is left.
func TestLostAnswersOfPermits(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	for _, test := range []struct {
		name, lost string
		next       bool // the waiter becomes the first later
	}{
		{"n0", "1-lock-", false}, {"n1", "/locks/_c_", false}, {"n2", "/leases/_c_", false},
		{"n3", "/leases/_c_", true}, {"n4", "/leases/_c_", true}, {"n5", "/leases/_c_", true}, // before or after the leader's answer
	} {
		holder := want.Acquire(t, other, requestIn(limitOne, test.name))
		first, req := queuedRequest(limitOne, test.name), queuedRequest(limitOne, test.name)
		if test.next {
			mustWait(t, other, first)
			mustWait(t, store, req)
			want.Error(t, "Release of a waiter", other.Release(t.Context(), want.Undo(first)), driver.ErrNotHeld)
		}
		lost := p.LoseReply(sends(opMulti, test.lost), true)
		mustWait(t, store, req)
		await.Event(t, lost, "the lost answer")
		nodes, leases, places := contenders(t, conn, test.name), nodeKinds(t, conn, test.name+"/leases"), nodeKinds(t, conn, test.name+"/locks")
		if len(nodes) != 2 || len(leases) != 2 || len(places) != 1 {
			t.Errorf("%v: the nodes are %q, %q and %q; want two, two leases and one place", test, nodes, leases, places)
		}
		want.Release(t, other, holder)
		want.Release(t, store, want.Acquire(t, store, req))
		nothingLeft(t, conn, test.name)
	}
}
