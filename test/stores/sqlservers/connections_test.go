package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestKilledConnections kills connections again and again while many goroutines use them. A
// call that fails reports an unknown outcome, no lock has two holders, and everything works
// after the last kill. TestConnections shows that held locks stay held.
func TestKilledConnections(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		const names, goroutines = 3, 8
		admin := s.admin(t)
		clients := []*dlock.Client{s.client(t), s.client(t)}
		var inside [names]atomic.Int32
		var failures, turns atomic.Int64
		ctx := within(t)
		end := time.Now().Add(4 * time.Second)
		var group sync.WaitGroup
		for i := range goroutines {
			group.Go(func() {
				for time.Now().Before(end) {
					name := i % names
					lease, err := clients[i%len(clients)].Lock(ctx, fmt.Sprint("busy/", name), dlock.WithTTL(5*faultTTL))
					if errors.Is(err, dlock.ErrUnreachable) {
						failures.Add(1)
						continue
					}
					if err != nil {
						t.Errorf("Lock: %v; want ErrUnreachable or nothing", err)
						return
					}
					if n := inside[name].Add(1); n != 1 {
						t.Errorf("%d have busy/%d", n, name)
					}
					turns.Add(1)
					<-time.After(time.Millisecond)
					inside[name].Add(-1)
					if err := lease.Unlock(ctx); err != nil && !errors.Is(err, dlock.ErrUnreachable) {
						t.Errorf("Unlock: %v; want ErrUnreachable or nothing", err)
					}
				}
			})
		}
		kills := 0
		for ; time.Now().Before(end); <-time.After(50 * time.Millisecond) {
			if err := s.kill(t.Context(), admin); err != nil {
				t.Errorf("kill: %v", err)
				break
			}
			kills++
		}
		group.Wait()
		t.Logf("%d turns and %d failures in %d rounds of kills", turns.Load(), failures.Load(), kills)
		if turns.Load() == 0 {
			t.Error("no lock was ever granted")
		}
		for name := range names {
			if err := <-lockAndUnlock(within(t), clients[0], fmt.Sprint("busy/", name)); err != nil {
				t.Errorf("after the last kill: %v", err)
			}
		}
	})
}

// TestIdleConnectionsEndedByServer: neither holders nor waiters notice a server that ends
// connections that were idle for a second.
func TestIdleConnectionsEndedByServer(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		s = s.with(s.shortIdleTimeout)
		holder, waiter := s.client(t), s.client(t)
		// The renewals are further apart than the server's idle timeout.
		lease, err := holder.Lock(within(t), "x", dlock.WithTTL(6*time.Second))
		check(t, err)
		granted := lockAndUnlock(within(t), waiter, "x")
		select {
		case err := <-granted:
			t.Fatalf("the waiter did not wait: %v", err)
		case <-lease.Context().Done():
			t.Fatalf("the lock was lost: %v", context.Cause(lease.Context()))
		case <-time.After(7 * time.Second): // longer than what was granted first
		}
		mustUnlockFor(t, lease, granted)
		for range 3 { // connections that died in the pool
			<-time.After(1500 * time.Millisecond)
			again, err := holder.TryLock(within(t), "y")
			if err != nil {
				t.Errorf("after a pause: %v", err)
				continue
			}
			check(t, again.Unlock(within(t)))
		}
	})
}

// lockAndUnlock locks and unlocks name in the background, and sends the error.
func lockAndUnlock(ctx context.Context, c *dlock.Client, name string, opts ...dlock.Option) <-chan error {
	ended := make(chan error, 1)
	go func() {
		lease, err := c.Lock(ctx, name, opts...)
		if err == nil {
			err = lease.Unlock(context.WithoutCancel(ctx))
		}
		ended <- err
		close(ended)
	}()
	return ended
}

// mustUnlockFor unlocks a lock, which a waiter gets then.
func mustUnlockFor(t testing.TB, lease *dlock.Lease, granted <-chan error) {
	t.Helper()
	check(t, lease.Unlock(within(t)))
	if err := await.Event(t, granted, "the waiter has the lock"); err != nil {
		t.Fatalf("the waiter: %v", err)
	}
}

// TestSilentConnections: connections that die in silence, as those do that a router has
// forgotten, keep no caller waiting for longer than some seconds.
func TestSilentConnections(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		admin, holder := s.admin(t), s.client(t)
		store, network := s.behindProxy(t)
		waiter := dlock.New(store, &dlock.Options{RequestTimeout: 3 * time.Second})
		defer waiter.Close()
		lease, err := holder.Lock(within(t), "x")
		check(t, err)
		granted := lockAndUnlock(within(t), waiter, "x")
		await.Until(t, "it is seen to wait", func() bool {
			left, err := s.leftovers(t.Context(), admin)
			return err == nil && slices.Contains(left, `place "x"`)
		})
		network.Blackhole()
		check(t, lease.Unlock(within(t)))
		if err := <-granted; err != nil {
			t.Errorf("the waiter: %v", err)
		}
	})
}

// TestLostCommit: a caller that acquires several locks does not wait for longer than its
// context for a server that falls silent just as they are committed.
func TestLostCommit(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, network := s.behindProxy(t)
		lost := network.LoseReply(isCommit, false)
		ctx, cancel := context.WithCancelCause(t.Context())
		given := make(chan error, 1)
		go func() {
			_, err := store.AcquireAll(ctx, []driver.Request{request("a"), request("b")})
			given <- err
		}()
		select {
		case <-lost:
		case err := <-given:
			t.Fatalf("AcquireAll, before the commit was answered: %v", err)
		case <-time.After(limit):
			t.Fatal("nothing is committed")
		}
		enough := errors.New("enough")
		cancel(enough)
		select {
		case err := <-given:
			if !errors.Is(err, enough) {
				t.Errorf("AcquireAll: %v; want that its context has ended", err)
			}
		case <-time.After(limit):
			t.Error("AcquireAll goes on although its context has ended")
			network.Reset()
			<-given
		}
	})
}

// TestVanishedClient: a machine that falls silent when it has written and before it commits
// keeps names for little longer than its TTL.
func TestVanishedClient(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		gone, network := s.behindProxy(t)
		other := s.open(t)
		short := func(name string) driver.Request {
			req := request(name)
			req.TTL = time.Second
			return req
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		defer func() {
			cancel()
			network.Reset()
			network.Deliver()
			if err := <-ended; err == nil {
				t.Error("what was never committed was granted")
			}
		}()
		silent := network.OnRequest(isCommit, func(*proxy.Conn) { network.Hold() })
		go func() {
			_, err := gone.AcquireAll(ctx, []driver.Request{short("x"), short("y")})
			ended <- err
		}()
		await.Event(t, silent, "the commit")
		start := time.Now()
		if _, err := other.Acquire(within(t), short("x")); err != nil { // the server misses the client after two seconds
			t.Errorf("Acquire of what a machine that is gone has written and not committed: %v", err)
		}
		if took := time.Since(start); took > limit/2 {
			t.Errorf("it was free after %v; want about two seconds", took)
		}
	})
}

// TestCloseAfterServerEndedConnections: closing a store whose idle connections the server has ended is no error.
func TestCloseAfterServerEndedConnections(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t)
		store, err := sqllock.Open(t.Context(), s.url, nil)
		check(t, err)
		var work sync.WaitGroup
		for i := range 8 { // so that a connection prepares nothing
			work.Go(func() {
				grants, err := store.AcquireAll(within(t), []driver.Request{request(fmt.Sprint(i)), request(fmt.Sprint(i, "b"))})
				if err != nil {
					t.Error(err)
					return
				}
				release(t, store, grants...)
			})
		}
		work.Wait()
		check(t, s.kill(t.Context(), s.admin(t)))
		check(t, store.Close())
	})
}
