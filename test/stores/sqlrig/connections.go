package sqlrig

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// KilledConnections kills connections again and again while many goroutines use them. Held
// locks stay held, a call that fails reports an unknown outcome, no lock has two holders, and
// everything works after the last kill.
func (d *Database) KilledConnections(t *testing.T, raw string) {
	t.Helper()
	const names, goroutines = 3, 8
	admin := d.DB(t, raw)
	keeper := d.Client(t, raw)
	kept, err := keeper.Lock(Within(t), "kept", dlock.WithTTL(FaultTTL))
	if err != nil {
		t.Fatal(err)
	}
	clients := []*dlock.Client{d.Client(t, raw), d.Client(t, raw)}
	var inside [names]atomic.Int32
	var failures, turns atomic.Int64
	ctx := Within(t)
	end := time.Now().Add(4 * time.Second)
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			for time.Now().Before(end) {
				name := i % names
				lease, err := clients[i%len(clients)].Lock(ctx, fmt.Sprint("busy/", name), dlock.WithTTL(FaultTTL))
				switch {
				case err == nil:
				case errors.Is(err, dlock.ErrUnreachable):
					failures.Add(1)
					continue
				default:
					t.Errorf("Lock: %v; want ErrUnreachable or nothing", err)
					return
				}
				if n := inside[name].Add(1); n != 1 {
					t.Errorf("%d have busy/%d", n, name)
				}
				turns.Add(1)
				inside[name].Add(-1)
				if err := lease.Unlock(ctx); err != nil && !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Unlock: %v; want ErrUnreachable or nothing", err)
				}
			}
		})
	}
	kills := 0
	for time.Now().Before(end) {
		if err := d.Kill(t.Context(), admin); err != nil {
			t.Errorf("kill: %v", err)
			break
		}
		kills++
		<-time.After(50 * time.Millisecond)
	}
	group.Wait()
	t.Logf("%d turns and %d failures in %d rounds of kills", turns.Load(), failures.Load(), kills)
	if err := kept.Context().Err(); err != nil {
		t.Errorf("a lock that is a row was lost with its connection: %v", context.Cause(kept.Context()))
	}
	if turns.Load() == 0 {
		t.Error("nobody ever got a lock")
	}
	for name := range names {
		lease, err := clients[0].Lock(Within(t), fmt.Sprint("busy/", name))
		if err != nil {
			t.Errorf("when it is over: %v", err)
			continue
		}
		if err := lease.Unlock(Within(t)); err != nil {
			t.Error(err)
		}
	}
	if err := kept.Unlock(Within(t)); err != nil {
		t.Errorf("Unlock of what was kept: %v", err)
	}
}

// ImpatientServer shows that neither holders nor waiters notice a server that drops idle
// connections.
func (d *Database) ImpatientServer(t *testing.T, raw string) {
	t.Helper()
	holder, waiter := d.Client(t, raw), d.Client(t, raw)
	// The renewals are further apart than the server's patience is long.
	lease, err := holder.Lock(Within(t), "x", dlock.WithTTL(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	granted := hasTurn(t, waiter, "x")
	select {
	case err := <-granted:
		t.Fatalf("the waiter did not wait: %v", err)
	case <-lease.Context().Done():
		t.Fatalf("the lock was lost: %v", context.Cause(lease.Context()))
	case <-time.After(7 * time.Second): // longer than what was granted first
	}
	start := time.Now()
	if err := lease.Unlock(Within(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if err := <-granted; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the waiter had the lock %v after the release", took)
	}
	for range 3 { // connections that died in the pool
		<-time.After(1500 * time.Millisecond)
		again, err := holder.TryLock(Within(t), "y")
		if err != nil {
			t.Errorf("after a pause: %v", err)
			continue
		}
		if err := again.Unlock(Within(t)); err != nil {
			t.Error(err)
		}
	}
}

// hasTurn waits for a lock in the background and unlocks it again; the channel says that
// it was had.
func hasTurn(t testing.TB, c *dlock.Client, name string) <-chan error {
	t.Helper()
	ctx, over := Within(t), make(chan error, 1)
	go func() {
		lease, err := c.Lock(ctx, name)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		over <- err
	}()
	return over
}

// SilentConnections shows that connections that die in silence, as those do that a
// router has forgotten, keep no caller waiting for longer than some seconds.
func (d *Database) SilentConnections(t *testing.T, raw string) {
	t.Helper()
	network, admin := proxy.Run(t, host(t, raw)), d.DB(t, raw)
	holder := d.Client(t, raw)
	waiter := dlock.New(d.Opened(t, At(raw, network.Addr())), &dlock.Options{RequestTimeout: time.Second})
	defer waiter.Close()
	lease, err := holder.Lock(Within(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	granted := hasTurn(t, waiter, "x")
	Eventually(t, "it is seen to wait", func() bool {
		left, err := d.leftovers(t.Context(), admin)
		return err == nil && slices.Contains(left, `place "x"`)
	})
	network.Blackhole()
	if err := lease.Unlock(Within(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// LostCommit shows that a caller that acquires several locks does not wait for longer than
// its context for a server that falls silent just as they are committed.
func (d *Database) LostCommit(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, host(t, raw))
	store := d.Opened(t, At(raw, network.Addr()))
	lost := network.LoseReply(isCommit, false)
	ctx, cancel := context.WithCancelCause(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := store.AcquireAll(ctx, []driver.Request{Request("a"), Request("b")})
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
}

// LostTogether shows that releases which were committed together are not made again if the
// answer is lost: the second time would find nothing, and report a loss that was none.
func (d *Database) LostTogether(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, host(t, raw))
	store := d.Opened(t, At(raw, network.Addr()))
	lost := network.LoseReply(isCommit, true)
	const rounds, locks = 20, 30
	for range rounds { // until some of them share a transaction
		grants := make([]driver.Grant, locks)
		for i := range grants {
			grant, err := store.Acquire(Within(t), Request(fmt.Sprint("name/", i)))
			if err != nil {
				t.Fatal(err)
			}
			grants[i] = grant
		}
		failed := make(chan error, locks)
		for _, grant := range grants {
			go func() { failed <- store.Release(Within(t), grant) }()
		}
		for range grants {
			if err := <-failed; errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of a lock that is held: %v", err)
			}
		}
		select {
		case <-lost:
			return
		default:
		}
	}
	t.Fatalf("no two of %d releases at a time were committed together", locks)
}

// isCommit finds the end of a transaction, as every driver writes it.
var isCommit = regexp.MustCompile(`(?i)\bcommit\b`).Match

// host is where the server of a URL is.
func host(t testing.TB, raw string) string {
	t.Helper()
	at, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return at.Host
}
