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
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/go-zookeeper/zk"
)

// TestGrantAfterFailedRemoval: an attempt is refused because of a queue, and the removal of its node
// fails. If the request was lost, the same owner asks again, gets the lock with that node, and keeps it.
// If the answer was lost, and another holder has created a node with the same name since, the owner is
// refused again.
func TestGrantAfterFailedRemoval(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	for name, arrives := range map[string]bool{"request-lost": false, "answer-lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, p := throughProxy(t, server, "?order=unfair")
			fair, other := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
			inQueue := want.Acquire(t, fair, request(name))
			req := request(name)
			want.Watch(t, store, req) // keeps the acquisition
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			removal := make(chan struct{})
			p.OnRequest(sends(opMulti, name), func(*proxy.Conn) { // the second transaction about the name is the removal
				if arrives {
					lost := p.LoseReply(sends(opMulti, name), false)
					go func() { <-lost; cancel(); close(removal) }()
					return
				}
				p.OnRequest(sends(opMulti, name), func(*proxy.Conn) { p.Hold(proxy.Requests); cancel(); close(removal) })
			})
			want.Unknown(t, "Acquire whose node could not be removed", want.Err(store.Acquire(ctx, req)))
			await.Event(t, removal, "the removal")
			want.Release(t, fair, inQueue)
			var next driver.Grant
			if arrives {
				next = want.Acquire(t, other, request(name))
			}
			p.Reset()
			p.Deliver()
			if !arrives {
				grant := want.Acquire(t, store, req)
				stillHeld(t, store, grant, "after the attempt that was refused")
				return
			}
			want.Held(t, store, req, "another has it by now")
			stillHeld(t, other, next, "after the refused owner's Acquire")
		})
	}
}

// TestLateReleaseLeavesNewLock: while a Release is on its way, its lock is broken and another
// holder acquires it. Neither the late Release nor a repetition, through the same store or
// another, touches the new lock.
func TestLateReleaseLeavesNewLock(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	for _, order := range []string{"fair", "unfair"} {
		for _, reap := range []bool{false, true} {
			name := fmt.Sprintf("%s-%v", order, reap)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				query := "?order=" + order
				store, p := throughProxy(t, server, query)
				other := open(t, server.URL()+query)
				stale := want.Acquire(t, store, request(name))
				held := p.OnRequest(removal(name), func(*proxy.Conn) { p.Hold(proxy.Requests) })
				released := want.Later(func() error { return store.Release(t.Context(), stale) })
				await.Event(t, held, "the release")
				want.Break(t, other, stale)
				if reap {
					if err := conn.Delete("/"+name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
						t.Fatal(err)
					}
				}
				grant := want.Acquire(t, other, request(name))
				p.Deliver()
				want.Error(t, "the late Release", await.Event(t, released, "the end of the release"), driver.ErrNotHeld)
				stillHeld(t, other, grant, "after a late Release")
				for _, again := range []driver.Grant{stale, {Name: name, Owner: stale.Owner}} {
					for _, through := range []driver.Store{store, other, open(t, server.URL()+query)} {
						want.Error(t, "a repeated Release", through.Release(t.Context(), again), driver.ErrNotHeld)
					}
				}
				stillHeld(t, other, grant, "after repeated Releases")
				want.Release(t, other, grant)
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
	stale := want.Acquire(t, store, request("x"))
	held := p.OnRequest(sends(opMulti, "/x/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
	released := want.Later(func() error { return store.Release(t.Context(), stale) })
	await.Event(t, held, "the release")
	want.Break(t, other, stale)
	want.Acquire(t, other, request("x"))
	p.Reset()
	p.Deliver()
	err := await.Event(t, released, "the end of the release")
	want.Error(t, "Release of a lock that was lost meanwhile", err, driver.ErrUnreachable)
	want.Error(t, "the next Release", store.Release(t.Context(), stale), driver.ErrNotHeld)
}

// TestLateRenewalReportsLoss: while a renewal is on its way, its lock is broken and another
// holder acquires it. The renewal returns ErrNotHeld and changes nothing.
func TestLateRenewalReportsLoss(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	inBothOrders(t, func(t *testing.T, order string) {
		query := "?order=" + order
		store, p := throughProxy(t, server, query)
		other := open(t, server.URL()+query)
		stale := want.Acquire(t, store, request(order))
		held := p.OnRequest(reads("/"+order+"/"), func(*proxy.Conn) { p.Hold(proxy.Requests) })
		renewed := want.Later(func() error { return want.RenewError(t, store, stale) })
		await.Event(t, held, "the renewal")
		want.Break(t, other, stale)
		grant := want.Acquire(t, other, request(order))
		p.Deliver()
		want.Error(t, "the late renewal", await.Event(t, renewed, "the end of the renewal"), driver.ErrNotHeld)
		want.Error(t, "a renewal through another store", want.RenewError(t, other, stale), driver.ErrNotHeld)
		stillHeld(t, other, grant, "after a late renewal")
		want.Release(t, other, grant)
	})
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
			var locks []<-chan error
			for _, order := range []string{"fair", "unfair"} {
				query := "?timeout=6s&order=" + order
				want.Acquire(t, open(t, server.URL()+query), request(order))
				store, req := open(t, server.URL()+query), request(order)
				req.Queue = order == "fair"
				want.Watch(t, store, req)
				mustWait(t, store, req)
				waiters = append(waiters, waiter{order, req, store})
				short := &dlock.Options{TTL: 2 * time.Second}
				watches := make(chan struct{}, 1)
				c, ended := client(t, reportingStore{open(t, server.URL()+query), watches}, short), make(chan error, 1)
				go func() { ended <- want.Err(c.Lock(t.Context(), order)) }()
				locks = append(locks, ended)
				await.Event(t, watches, "the wait of Lock")
			}
			want.OK(t, end(server))
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
				want.Error(t, "Lock", await.Event(t, lock, "the end of the wait"), dlock.ErrUnreachable)
			}
			if how == "hangs" {
				want.OK(t, server.Resume())
			}
		})
	}
}

// TestReleaseWithoutConnectionIsRepeated: a Release finds no server, once after an attempt whose
// answer was lost, and once of a held lock. The store releases both as soon as it has a
// connection again, long before they expire.
func TestReleaseWithoutConnectionIsRepeated(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	inBothOrders(t, func(t *testing.T, order string) {
		store, p := throughProxy(t, server, "?order="+order)
		lost, held := request(order+"-lost"), request(order+"-held")
		lost.TTL, held.TTL = time.Hour, time.Hour
		grant := want.Acquire(t, store, held)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := p.LoseReply(sends(opMulti, lost.Name), false)
		go func() { <-done; cancel() }()
		want.Unknown(t, "Acquire whose answer is lost", want.Err(store.Acquire(ctx, lost)))
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
			await.Until(t, "nothing is left of "+name, func() bool { return len(childrenOf(t, conn, name)) == 0 })
		}
	})
}

// TestLostReleaseIsRepeated: the request to remove a node is lost, and the caller of Release
// leaves. The store removes the node as soon as it has a connection again, long before the
// lock expires.
func TestLostReleaseIsRepeated(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	req := request("x")
	req.TTL = time.Hour
	grant := want.Acquire(t, store, req)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(sends(opMulti, "/x/"), func(*proxy.Conn) { p.Hold(proxy.Requests); cancel() })
	want.Unknown(t, "Release whose request is lost", store.Release(ctx, grant))
	p.Reset()
	p.Deliver()
	await.Until(t, "the node is gone", func() bool { return len(childrenOf(t, conn, "x")) == 0 })
}

// TestLateWatchKeepsNoPlace: the caller of Watch leaves at the moment at which the call begins. The
// waiter is forgotten all the same, and the place ends with its TTL.
func TestLateWatchKeepsNoPlace(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, other := open(t, server.URL()), open(t, server.URL())
	grant := want.Acquire(t, other, request("x"))
	req := request("x")
	req.TTL, req.Queue = time.Second, true
	want.Held(t, store, req, "another has it")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := store.Watch(&leavingContext{Context: ctx, cancel: cancel}, req, func() {})
	want.Unknown(t, "Watch whose context has ended", err)
	want.Release(t, other, grant)
	granted(t, other, "x")
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
	lease := want.Value(c.Lock(t.Context(), "x"))(t)
	p.Blackhole()
	want.Unlock(t, lease)
}

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.ZooKeeper).Addr())
	store := open(t, "zookeeper://"+p.Addr())
	grant := want.Acquire(t, store, request("held"))
	p.Hold()
	t.Cleanup(p.Deliver) // so that Close reaches the server
	faults.NoAnswer(t, store, grant, request("abandoned"), "no answer")
}
