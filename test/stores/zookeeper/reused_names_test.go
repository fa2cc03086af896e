package zookeeper

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// breakAndReap breaks a lock as an operator does, and waits until ZooKeeper has removed the
// empty container. A new container counts its versions from zero again.
func breakAndReap(t testing.TB, conn *zk.Conn, operator *zklock.Store, grant driver.Grant) {
	t.Helper()
	if err := operator.Break(t.Context(), grant.Name, grant.Token); err != nil {
		t.Fatalf("Break: %v", err)
	}
	reaped(t, conn, grant.Name)
}

// reaped waits until the server has removed the empty container of a lock.
func reaped(t testing.TB, conn *zk.Conn, name string) {
	t.Helper()
	eventually(t, "the empty container vanishes", func() bool {
		there, _, err := conn.Exists("/" + name)
		return err == nil && !there
	})
}

// stillHeld checks that the owner of a grant still holds the lock.
func stillHeld(t testing.TB, store *zklock.Store, grant driver.Grant, after string) {
	t.Helper()
	if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Errorf("%s Renew of the lock: %v", after, errs)
	}
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
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		url := server.URL() + "?order=" + order
		t.Run(order+" unlock", func(t *testing.T) {
			t.Parallel()
			name := order + "-unlock"
			lease, err := client(t, open(t, url), nil).Lock(t.Context(), name, dlock.WithFixedTTL(limit))
			if err != nil {
				t.Fatal(err)
			}
			breakAndReap(t, conn, open(t, url), driver.Grant{Name: name, Token: lease.Token()})
			other := open(t, url)
			grant := acquire(t, other, request(name))
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("Unlock of a broken lock: %v; want ErrNotHeld", err)
			}
			stillHeld(t, other, grant, "after the old holder's Unlock")
			release(t, other, grant)
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
				breakAndReap(t, conn, operator, acquire(t, old, req))
				grant = acquire(t, other, request(name))
				if time.Since(start) < ttl {
					break
				}
				ttl *= 2 // the old lock expired before the new one began: the machine is slow
				release(t, other, grant)
				reaped(t, conn, name)
			}
			eventually(t, "the old holder's TTL has passed", func() bool { return time.Since(start) > ttl+500*time.Millisecond })
			stillHeld(t, other, grant, "after the expiry of the old holder's TTL")
			release(t, other, grant)
			reaped(t, conn, name)
		})
	}
}

// TestHolderOfRemovedNodeLeavesNewLock: an operator removes the node of a lock by hand. The old
// holder's Release does not touch the next holder's lock, and no node of either stays.
func TestHolderOfRemovedNodeLeavesNewLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	url := server.URL() + "?order=unfair"
	old, other := open(t, url), open(t, url)
	for _, noticed := range []bool{false, true} {
		name := map[bool]string{false: "unnoticed", true: "noticed"}[noticed]
		lost := make(chan struct{})
		req := request(name)
		req.Lost = func() { close(lost) }
		stale := acquire(t, old, req)
		if noticed { // the first renewal watches the node
			if errs := old.Renew(t.Context(), []driver.Grant{stale}); errs != nil {
				t.Fatal(errs)
			}
		}
		if err := conn.Delete("/"+name+"/lock-0", -1); err != nil {
			t.Fatal(err)
		}
		grant := acquire(t, other, request(name))
		if noticed {
			happens(t, lost, "the call of Lost")
		}
		if err := old.Release(t.Context(), stale); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Release of a removed lock: %v; want ErrNotHeld", name, err)
		}
		stillHeld(t, other, grant, "after the old holder's Release")
		release(t, other, grant)
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
		stale := acquire(t, old, req)
		if err := other.Break(t.Context(), "n", stale.Token); err != nil {
			t.Fatal(err)
		}
		grant := acquire(t, other, request("n"))
		if again, err := old.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: the old owner's Acquire: token %d, %v; want ErrHeld, another has it with token %d", order, again.Token, err, grant.Token)
		}
		stillHeld(t, other, grant, order+": after the old owner's Acquire")
		release(t, other, grant)
	}
}

// TestRefusedOwnerDoesNotTakeAnothersNode: an attempt is refused because of a queue. Its node is
// removed, but the answer is lost. Then another holder creates a node with the same name,
// and the refused owner asks again. It is refused again.
func TestRefusedOwnerDoesNotTakeAnothersNode(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	fair, other := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
	store, p := throughProxy(t, server, "?order=unfair")
	const name = "refused"
	inQueue := acquire(t, fair, request(name))
	req := request(name)
	stop, err := store.Watch(t.Context(), req, func() {}) // keeps the acquisition
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// The second transaction about the name is the removal.
	happened := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	p.OnRequest(sends(opMulti, name), func(*proxy.Conn) {
		lost := p.LoseReply(sends(opMulti, name), false)
		go func() { <-lost; cancel(); close(happened) }()
	})
	if _, err := store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire whose node could not be removed: %v", err)
	}
	happens(t, happened, "the lost answer")
	release(t, fair, inQueue)
	grant := acquire(t, other, request(name))
	p.Reset()
	if again, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire: token %d, %v; want ErrHeld, another has it with token %d", again.Token, err, grant.Token)
	}
	stillHeld(t, other, grant, "after the refused owner's Acquire")
	release(t, other, grant)
}

// TestLateBreakLeavesNewLock: while a Break is on its way, the lock is released, ZooKeeper removes
// its container, and another holder creates a node with the same name. The late removal does
// not touch that node.
func TestLateBreakLeavesNewLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	create := func(t testing.TB, name string) (token uint64) { // as programs do that give nodes no ID
		t.Helper()
		if _, err := conn.CreateContainer("/"+name, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		path, err := conn.Create("/"+name+"/lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		_, stat, err := conn.Exists(path)
		if err != nil {
			t.Fatal(err)
		}
		return tokenstep.First(uint64(stat.Czxid))
	}
	for _, name := range []string{"lock-0", "no-id"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t, server.URL()+"?order=unfair")
			operator, p := throughProxy(t, server, "?order=unfair")
			var grant driver.Grant
			var token uint64
			if name == "lock-0" {
				grant = acquire(t, store, request(name))
				token = grant.Token
			} else {
				token = create(t, name)
			}
			removal := sends(opMulti, "/"+name+"/")
			if name == "no-id" { // hold a removal by name alone, too
				both := removal
				removal = func(request []byte) bool { return both(request) || sends(opDelete, "/"+name+"/")(request) }
			}
			held := p.OnRequest(removal, func(*proxy.Conn) { p.Hold(proxy.Requests) })
			broken := make(chan error, 1)
			go func() { broken <- operator.Break(t.Context(), name, token) }()
			happens(t, held, "the removal")
			if name == "lock-0" {
				release(t, store, grant)
				reaped(t, conn, name)
				grant = acquire(t, store, request(name))
				token = grant.Token
			} else {
				// Remove the container with all its nodes, as deleteall does.
				for _, child := range childrenOf(t, conn, name) {
					if err := conn.Delete("/"+name+"/"+child, -1); err != nil {
						t.Fatal(err)
					}
				}
				if err := conn.Delete("/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
					t.Fatal(err)
				}
				token = create(t, name)
			}
			p.Deliver()
			if err := happens(t, broken, "the end of Break"); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("the late Break: %v; want ErrNotHeld", err)
			}
			info, there, err := store.Find(t.Context(), name)
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

// TestLateBreakLeavesNewGrantOfSameOwner: while a Break is on its way, the lock is removed with
// its container, and its owner acquires it again. The late removal does not touch the new
// grant, though the sequence numbers have restarted.
func TestLateBreakLeavesNewGrantOfSameOwner(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store := open(t, server.URL())
	operator, p := throughProxy(t, server, "")
	const name = "again"
	req := request(name)
	stale := acquire(t, store, req)
	held := p.OnRequest(sends(opMulti, "/"+name+"/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
	broken := make(chan error, 1)
	go func() { broken <- operator.Break(t.Context(), name, stale.Token) }()
	happens(t, held, "the removal")
	for _, path := range append(childrenOf(t, conn, name), "") {
		if err := conn.Delete(strings.TrimSuffix("/"+name+"/"+path, "/"), -1); err != nil {
			t.Fatal(err)
		}
	}
	grant := acquire(t, store, req)
	p.Deliver()
	if err := happens(t, broken, "the end of Break"); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the late Break: %v; want ErrNotHeld", err)
	}
	stillHeld(t, store, grant, "after a late Break")
	release(t, store, grant)
}

// TestWaitersQueueAgainInNewContainer: an operator removes a lock with all its nodes. Waiters
// queue again in a new container, and get the lock.
func TestWaitersQueueAgainInNewContainer(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	holder := open(t, server.URL())
	acquire(t, holder, request("n"))
	const timeout = 4 * time.Second
	next := lockLater(t, client(t, open(t, server.URL()+"?timeout="+timeout.String()), nil), "n")
	eventually(t, "the waiter watches", func() bool { return watchCount(t, server) == 1 })
	waits := time.Now()
	eventually(t, "its node was last seen too long ago", func() bool { return time.Since(waits) > timeout/16 })
	var all []any
	for _, node := range childrenOf(t, conn, "n") {
		all = append(all, &zk.DeleteRequest{Path: "/n/" + node, Version: -1})
	}
	if _, err := conn.Multi(append(all, &zk.DeleteRequest{Path: "/n", Version: -1})...); err != nil {
		t.Fatal(err)
	}
	got := happens(t, next, "the waiter's turn")
	if got.err != nil {
		t.Fatal(got.err)
	}
	if err := got.lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
