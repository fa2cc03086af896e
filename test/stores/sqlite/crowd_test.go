package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// TestFairCrowdDoesNotStarveRenewals: while a crowd of fair waiters keeps its places, which it
// writes, the locks of the same process are renewed before they expire.
func TestFairCrowdDoesNotStarveRenewals(t *testing.T) {
	const ttl, waiterTTL = 9 * time.Second, 3 * time.Second
	waiters := int64(3000)
	if raceEnabled {
		waiters = 200
	}
	path := tempFile(t)
	store, err := openFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	c := dlock.New(store, &dlock.Options{RequestTimeout: await.Limit}) // for thousands of first attempts
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	var leases []*dlock.Lease
	for _, name := range []string{"wanted", "unrelated"} {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(ttl), dlock.WithFair())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			if _, err := c.Lock(ctx, "wanted", dlock.WithTTL(waiterTTL), dlock.WithFair()); !errors.Is(err, context.Canceled) {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	db := openDB(t, path)
	await.Until(t, "most of the crowd has a place", func() bool {
		return number(t, db, `SELECT count(*) FROM dlock_queue WHERE fair = 1`) > waiters/2
	})
	expiry := func() int64 {
		return number(t, db, `SELECT coalesce(min(expires), 0) FROM dlock_locks WHERE owner IS NOT NULL`)
	}
	for range 2 {
		before := expiry()
		await.Until(t, "both locks are renewed", func() bool { return expiry() > before })
	}
	cancel()
	wg.Wait()
	for _, lease := range leases {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("the lock %q was not kept: %v", lease.Name(), err)
		}
	}
}

const (
	crowdTTL       = 3 * time.Second
	crowdProcesses = 4
	crowdWaiters   = 50 // in each process
)

// crowd has many goroutines wait for one name in the order of arrival. Asked for it, it
// says how many statements it has written so far. When all of them have had the lock, it
// says so.
func crowd(args []string) error {
	ctx := context.Background()
	way := &counting{dsn: sqllock.SQLiteDSN(args[0])}
	db := sql.OpenDB(way)
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		return err
	}
	client := dlock.New(store, nil)
	failed := make(chan error, crowdWaiters)
	var waiters sync.WaitGroup
	for range crowdWaiters {
		waiters.Go(func() {
			lease, err := client.Lock(ctx, "x", dlock.WithTTL(crowdTTL), dlock.WithFair())
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if err != nil {
				failed <- err
			}
		})
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && lines.Text() == "writes"; {
		fmt.Println(way.writes.Load())
	}
	waiters.Wait()
	close(failed)
	fmt.Println("served")
	return errors.Join(<-failed, client.Close(), store.Close(), db.Close())
}

// TestCrowdsOfFairWaiters: the places of all waiters of a process are renewed together, so
// that many waiters leave the one writer time to serve them, and all of them are served.
func TestCrowdsOfFairWaiters(t *testing.T) {
	path := tempFile(t)
	db := openDB(t, path)
	c := dlock.New(newStore(t, db), nil)
	closeAfter(t, c)
	lease, err := c.Lock(t.Context(), "x", dlock.WithFair())
	check(t, err)
	processes := make([]process, crowdProcesses)
	for i := range processes {
		processes[i] = startProcess(t, "crowd", path)
	}
	await.Until(t, "all waiters have a place", func() bool {
		return number(t, db, `SELECT count(*) FROM dlock_queue WHERE fair = 1`) == crowdProcesses*crowdWaiters
	})
	writes := func() (n int64) {
		for _, p := range processes {
			p.tell("writes")
			n += p.hearNumber()
		}
		return n
	}
	before := writes()
	<-time.After(crowdTTL)
	wrote := writes() - before
	t.Logf("%d waiters in %d processes write %d statements in a TTL", crowdProcesses*crowdWaiters, crowdProcesses, wrote)
	if wrote == 0 || wrote > crowdProcesses*crowdWaiters {
		t.Errorf("%d statements; want fewer than there are waiters, but some", wrote)
	}
	for _, p := range processes {
		p.tell("end")
	}
	check(t, lease.Unlock(t.Context()))
	for _, p := range processes {
		if text, err := p.Receive(3 * time.Minute); text != "served" { // each of the waiters waits for the disk
			t.Errorf("a process said %q: %v", text, err)
		}
	}
}

// TestWaitersBehindAFreeLockDoNotWrite: while the waiter at the head of the queue has not
// come yet for a lock that is free, the others do not keep it from writing.
func TestWaitersBehindAFreeLockDoNotWrite(t *testing.T) {
	t.Parallel()
	way := &counting{dsn: sqllock.SQLiteDSN(tempFile(t))}
	db := sql.OpenDB(way)
	t.Cleanup(func() { _ = db.Close() })
	store := newStore(t, db)
	grant := mustAcquire(t, store, request("x"))
	queue := func(req driver.Request) {
		t.Helper()
		req.Fair, req.Queue = true, true
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("an attempt of a waiter: %v; want ErrHeld", err)
		}
	}
	head, next := request("x"), request("x")
	queue(head)
	queue(next)
	mustRelease(t, store, grant)
	before := way.writes.Load()
	const attempts = 10
	for range attempts {
		queue(next)
	}
	if wrote := way.writes.Load() - before; wrote >= attempts { // the store itself writes now and then
		t.Errorf("a waiter whose turn it is not writes %d statements in %d attempts", wrote, attempts)
	}
	head.Fair, head.Queue = true, true
	mustRelease(t, store, mustAcquire(t, store, head))
}
