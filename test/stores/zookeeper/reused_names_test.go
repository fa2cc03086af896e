package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// breakAndReap breaks a lock as an operator does, and waits until ZooKeeper has removed the
// empty container. A new container counts its versions from zero again.
func breakAndReap(t testing.TB, conn *zk.Conn, operator *zklock.Store, grant driver.Grant) {
	t.Helper()
	want.Break(t, operator, grant)
	reaped(t, conn, grant.Name)
}

// reaped waits until the server has removed the empty container of a lock.
func reaped(t testing.TB, conn *zk.Conn, name string) {
	t.Helper()
	await.Until(t, "the empty container vanishes", func() bool {
		there, _, err := conn.Exists("/" + name)
		return err == nil && !there
	})
}

// stillHeld checks that the owner of a grant still holds the lock.
func stillHeld(t testing.TB, store *zklock.Store, grant driver.Grant, after string) {
	t.Helper()
	want.Renew(t, store, after, grant)
	info, held, err := store.Find(t.Context(), grant.Name)
	if err != nil || !held || info.Token != grant.Token {
		t.Errorf("%s the lock is held with token %d (%v, %v); want %d", after, info.Token, held, err, grant.Token)
	}
}

// TestStaleHolderLeavesNewLock: a lock was broken, ZooKeeper removed its empty container,
// and another holder has the lock in a new container with the same version. Neither the
// old holder's Unlock nor the expiry of its TTL removes the new holder's node.
func TestStaleHolderLeavesNewLock(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	for _, order := range []string{"fair", "unfair"} {
		url := server.URL() + "?order=" + order
		t.Run(order+" unlock", func(t *testing.T) {
			t.Parallel()
			name := order + "-unlock"
			lease := want.Value(client(t, open(t, url), nil).Lock(t.Context(), name, dlock.WithFixedTTL(limit)))(t)
			breakAndReap(t, conn, open(t, url), driver.Grant{Name: name, Token: lease.Token()})
			other := open(t, url)
			grant := want.Acquire(t, other, request(name))
			want.Error(t, "Unlock of a broken lock", lease.Unlock(t.Context()), dlock.ErrNotHeld)
			stillHeld(t, other, grant, "after the old holder's Unlock")
			want.Release(t, other, grant)
			reaped(t, conn, name)
		})
		t.Run(order+" expiry", func(t *testing.T) {
			t.Parallel()
			name := order + "-expiry"
			old, other, operator := open(t, url), open(t, url), open(t, url)
			var start time.Time
			var grant driver.Grant
			ttl := 3 * time.Second
			for {
				req := request(name)
				req.TTL = ttl
				start = time.Now()
				breakAndReap(t, conn, operator, want.Acquire(t, old, req))
				grant = want.Acquire(t, other, request(name))
				if time.Since(start) < ttl {
					break
				}
				ttl *= 2 // the old lock expired before the new one began: the machine is slow
				want.Release(t, other, grant)
				reaped(t, conn, name)
			}
			await.Until(t, "the old holder's TTL has passed", func() bool { return time.Since(start) > ttl+500*time.Millisecond })
			stillHeld(t, other, grant, "after the expiry of the old holder's TTL")
			want.Release(t, other, grant)
			reaped(t, conn, name)
		})
	}
}

// TestHolderOfRemovedNodeLeavesNewLock: an operator removes the node of a lock by hand. The old
// holder's Release does not touch the next holder's lock, and no node of either stays.
func TestHolderOfRemovedNodeLeavesNewLock(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	url := server.URL() + "?order=unfair"
	old, other := open(t, url), open(t, url)
	for _, noticed := range []bool{false, true} {
		name := map[bool]string{false: "unnoticed", true: "noticed"}[noticed]
		lost := make(chan struct{})
		req := request(name)
		req.Lost = func() { close(lost) }
		stale := want.Acquire(t, old, req)
		if noticed { // the first renewal watches the node
			want.Renew(t, old, "of what is held", stale)
		}
		want.OK(t, conn.Delete("/"+name+"/lock-0", -1))
		grant := want.Acquire(t, other, request(name))
		if noticed {
			await.Event(t, lost, "Lost")
		}
		want.Error(t, name+": Release of a removed lock", old.Release(t.Context(), stale), driver.ErrNotHeld)
		stillHeld(t, other, grant, "after the old holder's Release")
		want.Release(t, other, grant)
		reaped(t, conn, name)
	}
}

// TestStaleHolderIsNotGrantedAgain: the owner of a broken lock asks again, as after a lost
// answer, while another holder has a node with the same name. The owner is refused.
func TestStaleHolderIsNotGrantedAgain(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		url := server.URL() + "/" + order + "?order=" + order
		old, other := open(t, url), open(t, url)
		req := request("n")
		stale := want.Acquire(t, old, req)
		want.Break(t, other, stale)
		grant := want.Acquire(t, other, request("n"))
		want.Held(t, old, req, "another has it by now")
		stillHeld(t, other, grant, order+": after the old owner's Acquire")
		want.Release(t, other, grant)
	}
}

// TestLateBreakLeavesNewLock: while a Break is on its way, the lock ends, its container is removed, and
// another holder, or the same owner, creates a node with the same name or number. The late removal does
// not touch that node.
func TestLateBreakLeavesNewLock(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	unfair, fair := open(t, server.URL()+"?order=unfair"), open(t, server.URL())
	removeAll := func(t testing.TB, name string) { // as deleteall does
		for _, child := range childrenOf(t, conn, name) {
			want.OK(t, conn.Delete("/"+name+"/"+child, -1))
		}
		if err := conn.Delete("/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
	}
	same := request("same-owner")
	for name, test := range map[string]struct {
		create func(t testing.TB) (token uint64)
		end    func(t testing.TB, token uint64)
	}{
		"lock-0": {
			func(t testing.TB) uint64 { return want.Acquire(t, unfair, request("lock-0")).Token },
			func(t testing.TB, token uint64) {
				breakAndReap(t, conn, unfair, driver.Grant{Name: "lock-0", Token: token})
			},
		},
		"no-id": {
			func(t testing.TB) uint64 { // as programs do that give nodes no ID
				createContainers(t, conn, "/no-id")
				_, stat, err := conn.Exists(createSequential(t, conn, "/no-id/lock-"))
				want.OK(t, err)
				return tokenstep.First(uint64(stat.Czxid))
			},
			func(t testing.TB, _ uint64) { removeAll(t, "no-id") },
		},
		"same-owner": {
			func(t testing.TB) uint64 { return want.Acquire(t, fair, same).Token },
			func(t testing.TB, _ uint64) { removeAll(t, "same-owner") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator, p := throughProxy(t, server, "?order=unfair")
			stale := test.create(t)
			held := p.OnRequest(removal("/"+name+"/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
			broken := want.Later(func() error { return operator.Break(t.Context(), name, stale) })
			await.Event(t, held, "the removal")
			test.end(t, stale)
			token := test.create(t)
			p.Deliver()
			want.Error(t, "the late Break", await.Event(t, broken, "the end of Break"), driver.ErrNotHeld)
			info, there, err := fair.Find(t.Context(), name)
			if err != nil || !there || info.Token != token {
				t.Errorf("after a late Break the lock is held with token %d (%v, %v); want %d", info.Token, there, err, token)
			}
			if n := len(contenders(t, conn, name)); n != 1 {
				t.Errorf("the lock has %d contenders; want one", n)
			}
		})
	}
}

// childrenOf asks again while the client has no connection.
func childrenOf(t testing.TB, conn *zk.Conn, name string) (children []string) {
	t.Helper()
	var err error
	await.Until(t, "the client is connected", func() bool {
		children, _, err = conn.Children("/" + name)
		return !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, zk.ErrConnectionClosed)
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return children
}

// TestWaitersQueueAgainInNewContainer: an operator removes a lock with all its nodes. Waiters
// queue again in a new container, and get the lock.
func TestWaitersQueueAgainInNewContainer(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	holder := open(t, server.URL())
	want.Acquire(t, holder, request("n"))
	const timeout = 4 * time.Second
	next := want.Locked(t, client(t, open(t, server.URL()+"?timeout="+timeout.String()), nil), "n")
	await.Until(t, "the waiter watches", func() bool { return watchCount(t, server) == 1 })
	waits := time.Now()
	await.Until(t, "its node was last seen too long ago", func() bool { return time.Since(waits) > timeout/16 })
	var all []any
	for _, node := range childrenOf(t, conn, "n") {
		all = append(all, &zk.DeleteRequest{Path: "/n/" + node, Version: -1})
	}
	want.OK(t, want.Err(conn.Multi(append(all, &zk.DeleteRequest{Path: "/n", Version: -1})...)))
	want.Unlock(t, want.Served(t, next, 0))
}
