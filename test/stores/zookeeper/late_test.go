package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

// TestGrantAfterFailedRemoval: the node of a refused attempt could not be removed. The same
// owner asks again, gets the lock with that node, and keeps it.
func TestGrantAfterFailedRemoval(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "?order=unfair")
	other := open(t, server.URL())
	const name = "stays"
	inQueue := acquire(t, other, request(name))
	req := request(name)
	stop, err := store.Watch(t.Context(), req, func() {}) // keeps the acquisition
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// The second transaction about the name is the removal, which is lost.
	removal := make(chan struct{})
	p.OnRequest(sends(opMulti, name), func(*proxy.Conn) {
		p.OnRequest(sends(opMulti, name), func(*proxy.Conn) { p.Hold(proxy.Requests); close(removal) })
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-removal; cancel() }()
	if _, err := store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire whose node could not be removed: %v", err)
	}
	happens(t, removal, "the removal")
	p.Reset()
	p.Deliver()
	release(t, other, inQueue)
	grant := acquire(t, store, req)
	stillHeld(t, store, grant, "after an attempt of the same owner that was refused,")
	release(t, store, grant)
}

// TestLateAcquireLeavesNothing: the caller of an attempt gives up and releases while the
// request is still on its way. When it arrives, it leaves no node.
func TestLateAcquireLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		for _, queue := range []bool{false, true} {
			name := fmt.Sprintf("%s-%v", order, queue)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store, p := throughProxy(t, server, "?order="+order)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p.OnRequest(sends(opMulti, name), func(*proxy.Conn) { p.Hold(proxy.Requests); cancel() })
				req := request(name)
				req.Queue = queue && order == "fair"
				if _, err := store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
					t.Fatalf("Acquire that was given up: %v", err)
				}
				released := make(chan error, 1)
				go func() { released <- store.Release(t.Context(), driver.Grant{Name: name, Owner: req.Owner}) }()
				short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if err := store.Release(short, driver.Grant{Name: name, Owner: req.Owner}); err == nil || errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Release while the request is on its way: %v; want an unknown outcome", err)
				}
				p.Deliver()
				if err := happens(t, released, "the release"); err != nil && !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Release: %v", err)
				}
				if left := childrenOf(t, conn, name); len(left) > 0 {
					t.Errorf("after Release the nodes are %q; want none", left)
				}
			})
		}
	}
}

// TestLateReleaseLeavesNewLock: while a Release is on its way, its lock is broken and another
// holder acquires it. Neither the late Release nor a repetition, through the same store or
// another, touches the new lock.
func TestLateReleaseLeavesNewLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		for _, reap := range []bool{false, true} {
			name := fmt.Sprintf("%s-%v", order, reap)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				query := "?order=" + order
				store, p := throughProxy(t, server, query)
				other := open(t, server.URL()+query)
				stale := acquire(t, store, request(name))
				both := []uint32{opDelete, opMulti}
				held := p.OnRequest(func(request []byte) bool {
					return sends(both[0], name)(request) || sends(both[1], name)(request)
				}, func(*proxy.Conn) { p.Hold(proxy.Requests) })
				released := make(chan error, 1)
				go func() { released <- store.Release(t.Context(), stale) }()
				happens(t, held, "the release")
				if err := other.Break(t.Context(), name, stale.Token); err != nil {
					t.Fatal(err)
				}
				if reap {
					if err := conn.Delete("/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
						t.Fatal(err)
					}
				}
				grant := acquire(t, other, request(name))
				p.Deliver()
				if err := happens(t, released, "the end of the release"); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("the late Release: %v; want ErrNotHeld", err)
				}
				stillHeld(t, other, grant, "after a late Release")
				for _, again := range []driver.Grant{stale, {Name: name, Owner: stale.Owner}} {
					for _, through := range []driver.Store{store, other, open(t, server.URL()+query)} {
						if err := through.Release(t.Context(), again); !errors.Is(err, driver.ErrNotHeld) {
							t.Errorf("a repeated Release: %v; want ErrNotHeld", err)
						}
					}
				}
				stillHeld(t, other, grant, "after repeated Releases")
				release(t, other, grant)
			})
		}
	}
}

// TestRepeatedReleaseThatFindsNothingIsUnreachable: the first request of a Release is lost with
// its connection, another holder has the lock meanwhile, and the second request finds no node.
// Release must not report that it gave up the lock.
func TestRepeatedReleaseThatFindsNothingIsUnreachable(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	stale := acquire(t, store, request("x"))
	held := p.OnRequest(sends(opMulti, "/x/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
	released := make(chan error, 1)
	go func() { released <- store.Release(t.Context(), stale) }()
	happens(t, held, "the release")
	if err := other.Break(t.Context(), "x", stale.Token); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, request("x"))
	p.Reset()
	p.Deliver()
	if err := happens(t, released, "the end of the release"); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Release of a lock that was lost meanwhile: %v; want ErrUnreachable", err)
	}
	if err := store.Release(t.Context(), stale); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the next Release: %v; want ErrNotHeld", err)
	}
}

// TestLateRenewalReportsLoss: while a renewal is on its way, its lock is broken and another
// holder acquires it. The renewal returns ErrNotHeld and changes nothing.
func TestLateRenewalReportsLoss(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			query := "?order=" + order
			store, p := throughProxy(t, server, query)
			other := open(t, server.URL()+query)
			stale := acquire(t, store, request(order))
			held := p.OnRequest(reads("/"+order+"/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
			renewed := make(chan []error, 1)
			go func() { renewed <- store.Renew(t.Context(), []driver.Grant{stale}) }()
			happens(t, held, "the renewal")
			if err := other.Break(t.Context(), order, stale.Token); err != nil {
				t.Fatal(err)
			}
			grant := acquire(t, other, request(order))
			p.Deliver()
			if errs := happens(t, renewed, "the end of the renewal"); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
				t.Errorf("the late renewal: %v; want ErrNotHeld", errs)
			}
			if errs := other.Renew(t.Context(), []driver.Grant{stale}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
				t.Errorf("a renewal through another store: %v; want ErrNotHeld", errs)
			}
			stillHeld(t, other, grant, "after a late renewal")
			release(t, other, grant)
		})
	}
}

// TestLostServerIsUnreachable: when the server is stopped, killed or hangs, an attempt of a waiter
// returns ErrUnreachable in time, and not the ErrHeld that it knew before. So does a waiting Lock.
func TestLostServerIsUnreachable(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*servers.Server) error{
		"stopped": (*servers.Server).Stop,
		"killed":  (*servers.Server).Kill,
		"hangs":   (*servers.Server).Pause,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.ZooKeeper)
			type waiter struct {
				order string
				req   driver.Request
				store driver.Store
			}
			var waiters []waiter
			var locks []<-chan outcome
			for _, order := range []string{"fair", "unfair"} {
				query := "?timeout=6s&order=" + order
				acquire(t, open(t, server.URL()+query), request(order))
				store, req := open(t, server.URL()+query), request(order)
				req.Queue = order == "fair"
				stop, err := store.Watch(t.Context(), req, func() {})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
				if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("%s: Acquire: %v; want ErrHeld", order, err)
				}
				waiters = append(waiters, waiter{order, req, store})
				short := &dlock.Options{TTL: 2 * time.Second}
				watches := make(chan struct{}, 1)
				locks = append(locks, lockLater(t, client(t, reportingStore{open(t, server.URL()+query), watches}, short), order))
				happens(t, watches, "the wait of Lock")
			}
			if err := end(server); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for _, w := range waiters {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					start := time.Now()
					_, err := w.store.Acquire(ctx, w.req)
					if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
						t.Errorf("%s: Acquire: %v; want ErrUnreachable", w.order, err)
					}
					if took := time.Since(start); took > 10*time.Second {
						t.Errorf("%s: Acquire took %v", w.order, took)
					}
				})
			}
			all.Wait()
			for _, lock := range locks {
				if got := happens(t, lock, "the end of the wait"); !errors.Is(got.err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v; want ErrUnreachable", got.err)
				}
			}
			if how == "hangs" {
				if err := server.Resume(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestReleaseWithoutConnectionIsRepeated: a Release finds no server, once after an attempt whose
// answer was lost, and once of a held lock. The store releases both as soon as it has a
// connection again, long before they expire.
func TestReleaseWithoutConnectionIsRepeated(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			store, p := throughProxy(t, server, "?order="+order)
			lost, held := request(order+"-lost"), request(order+"-held")
			lost.TTL, held.TTL = time.Hour, time.Hour
			grant := acquire(t, store, held)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := p.LoseReply(sends(opMulti, lost.Name), false)
			go func() { <-done; cancel() }()
			if _, err := store.Acquire(ctx, lost); err == nil || errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Acquire whose answer is lost: %v", err)
			}
			p.Hang(true)
			p.Reset()
			for _, g := range []driver.Grant{grant, {Name: lost.Name, Owner: lost.Owner}} {
				short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if err := store.Release(short, g); err == nil || errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Release(%q) without a connection: %v", g.Name, err)
				}
				cancel()
			}
			p.Hang(false)
			p.Reset()
			for _, name := range []string{lost.Name, held.Name} {
				eventually(t, "nothing is left of "+name, func() bool {
					there, stat, err := conn.Exists("/" + name)
					return err == nil && (!there || stat.NumChildren == 0)
				})
			}
		})
	}
}

// TestLostReleaseIsRepeated: the request to remove a node is lost, and the caller of Release
// leaves. The store removes the node as soon as it has a connection again, long before the
// lock expires.
func TestLostReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	req := request("x")
	req.TTL = time.Hour
	grant := acquire(t, store, req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(sends(opMulti, "/x/"), func(*proxy.Conn) { p.Hold(proxy.Requests); cancel() })
	if err := store.Release(ctx, grant); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("Release whose request is lost: %v", err)
	}
	p.Reset()
	p.Deliver()
	eventually(t, "the node is gone", func() bool {
		there, stat, err := conn.Exists("/x")
		return err == nil && (!there || stat.NumChildren == 0)
	})
}

// TestLateWatchKeepsNoPlace: the caller of Watch leaves at the moment at which the call begins. The
// waiter is forgotten all the same, and the place ends with its TTL.
func TestLateWatchKeepsNoPlace(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	grant := acquire(t, other, request("x"))
	req := request("x")
	req.TTL, req.Queue = time.Second, true
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := store.Watch(&leavingContext{Context: ctx, cancel: cancel}, req, func() {}); err == nil {
		t.Fatal("Watch returned no error, although its context had ended")
	}
	release(t, other, grant)
	eventually(t, "the place ends", func() bool {
		_, err := other.Acquire(t.Context(), request("x"))
		return err == nil
	})
}

// leavingContext ends when it is asked for the second time whether it has ended. The answer comes
// so late that it is no longer true.
type leavingContext struct {
	context.Context
	cancel func()
	asked  atomic.Int32
}

func (c *leavingContext) Err() error {
	if c.asked.Add(1) != 2 {
		return c.Context.Err()
	}
	c.cancel()
	<-time.After(200 * time.Millisecond) // until the caller has left
	return nil
}

// TestUnlockUsesNewConnectionWhenOldOneHangs: Unlock over a connection that was cut without a reset
// releases the lock over another one before it gives up, however long the session's timeout is.
func TestUnlockUsesNewConnectionWhenOldOneHangs(t *testing.T) {
	t.Parallel()
	store, p := throughProxy(t, servers.Run(t, servers.ZooKeeper), "?timeout=30s")
	c := client(t, store, nil)
	lease, err := c.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	if err := lease.Unlock(t.Context()); err != nil { // it gives up after ten seconds
		t.Errorf("Unlock over a connection that hangs: %v", err)
	}
}
