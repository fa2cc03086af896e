package sqlrig

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Bounds of what a process that waits for 1,000 names costs the server.
const (
	waitedNames    = 1000
	maxConnections = 3
)

// WaitersAreCheap shows that a process with 1,000 goroutines that wait for 1,000
// names uses three connections at most and so many statements a second, and each
// of them is woken by a release long before the lock would have expired. The server
// must have nothing else to do.
func (d *Database) WaitersAreCheap(t *testing.T, parameters string, perSecond float64) {
	t.Helper()
	raw := d.URL(t, parameters)
	admin := d.DB(t, raw)
	holder := d.Client(t, raw)
	user := fmt.Sprintf("waiter%d", databases.Add(1))
	if err := errors.Join(d.CreateUser(t.Context(), admin, user, "pw"), d.Grant(t.Context(), admin, user, "SELECT, INSERT, UPDATE, DELETE")); err != nil {
		t.Fatal(err)
	}
	waiting := d.Client(t, As(t, raw, user, "pw"))

	names := make([]string, waitedNames)
	for i := range names {
		names[i] = fmt.Sprintf("name/%d", i)
	}
	leases, err := holder.LockAll(Within(t), names, dlock.WithTTL(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make([]chan struct{}, len(names))
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for i, name := range names {
		granted[i] = make(chan struct{})
		group.Go(func() {
			lease, err := waiting.Lock(ctx, name)
			switch {
			case err == nil:
				close(granted[i])
				err = lease.Unlock(context.WithoutCancel(ctx))
			case errors.Is(err, context.Canceled):
				err = nil
			}
			if err != nil {
				t.Errorf("a waiter for %q: %v", name, err)
			}
		})
	}
	// When others see that all of them wait, the first attempts are over.
	Eventually(t, "all waiters are seen", func() bool { return waiters(t, holder, "") == waitedNames })

	<-time.After(2 * time.Second) // for what follows that they came
	rate := d.calmRate(t, admin, user, perSecond)
	if rate > perSecond {
		t.Errorf("%.1f statements a second for %d waiters, want %.1f at most", rate, waitedNames, perSecond)
	}
	start := time.Now()
	if err := leases.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, waitedNames / 2, waitedNames - 1} {
		select {
		case <-granted[i]:
		case <-time.After(limit):
			t.Fatalf("waiter %d was not told within %v", i, limit)
		}
	}
	t.Logf("three of them had their locks %v after all %d were released", time.Since(start), waitedNames)
}

// calmRate measures the statements per second while all callers wait. A server may count late:
// PostgreSQL publishes the statistics of an idle connection after up to ten seconds. So calmRate
// measures more than once; what waiters do all the time shows every time.
func (d *Database) calmRate(t testing.TB, admin *sql.DB, user string, perSecond float64) (rate float64) {
	t.Helper()
	const chances, looks, window = 4, 10, 4 * time.Second
	for range chances {
		before, most := d.statements(t, admin), 0
		for range looks {
			n, err := d.CountConnections(t.Context(), admin, user)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
			<-time.After(window / looks)
		}
		rate = float64(d.statements(t, admin)-before-looks-1) / window.Seconds()
		t.Logf("%d waiters for as many names: %d connections, %.1f statements a second", waitedNames, most, rate)
		if most > maxConnections {
			t.Errorf("%d connections for %d waiters, want %d at most", most, waitedNames, maxConnections)
		}
		if rate <= perSecond {
			break
		}
	}
	return rate
}

func (d *Database) statements(t testing.TB, admin *sql.DB) int64 {
	t.Helper()
	n, err := d.Statements(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waiters counts the waiters for names that begin with the prefix.
func waiters(t testing.TB, c *dlock.Client, prefix string) (n int) {
	t.Helper()
	for info, err := range c.Locks(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		n += info.Waiters
	}
	return n
}

// WakeUp shows that a waiter is woken by a release by another process's store
// long before the lock would have expired, also after all connections were lost.
func (d *Database) WakeUp(t *testing.T, raw string) {
	t.Helper()
	holder, waiter := d.Client(t, raw), d.Client(t, raw)
	admin := d.DB(t, raw)
	for round := range 4 {
		name := fmt.Sprint("name/", round) // that others waited for the last one may be seen for a moment
		lease, err := holder.Lock(Within(t), name, dlock.WithTTL(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			next, err := waiter.Lock(Within(t), name)
			if err == nil {
				err = next.Unlock(t.Context())
			}
			granted <- err
		}()
		Eventually(t, "somebody is seen to wait", func() bool { return waiters(t, holder, name) == 1 })
		if round%2 == 1 {
			if err := d.Kill(t.Context(), admin); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := lease.Unlock(Within(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-granted; err != nil {
			t.Fatalf("the waiter: %v", err)
		}
		took := time.Since(start)
		t.Logf("round %d: told and done after %v", round, took)
		if took > 5*time.Second {
			t.Errorf("round %d: the waiter had the lock %v after the release", round, took)
		}
	}
}
