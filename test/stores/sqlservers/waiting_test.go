package sqlservers

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Bounds of what a process that waits for 1,000 names costs the server.
const (
	waitedNames    = 1000
	maxConnections = 3
)

// TestWaiting: a process with 1,000 goroutines that wait for 1,000 names uses three
// connections at most and so many statements a second, and each of them is woken by a release
// long before the lock would have expired. The server has nothing else to do.
func TestWaiting(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		server := servers.Run(t, d.kind, d.args...)
		for _, scheme := range schemes {
			t.Run(scheme, func(t *testing.T) { d.on(t, server, "scheme="+scheme).waiting(t) })
		}
	})
}

func (s target) waiting(t *testing.T) {
	t.Helper()
	holder := s.client(t)
	as, user := s.user(t, "SELECT, INSERT, UPDATE, DELETE")
	waiting := as.client(t)
	names := make([]string, waitedNames)
	for i := range names {
		names[i] = fmt.Sprintf("name/%d", i)
	}
	var held []*dlock.Leases
	for some := range slices.Chunk(names, 500) { // LockAll takes no more
		leases, err := holder.LockAll(within(t), some, dlock.WithTTL(10*time.Minute))
		check(t, err)
		held = append(held, leases)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	turns := make([]<-chan error, len(names))
	for i, name := range names {
		turns[i] = lockAndUnlock(ctx, waiting, name, dlock.WithTTL(10*time.Minute)) // and try again by themselves after minutes
	}
	// When others see that all of them wait, the first attempts are over.
	await.Until(t, "all waiters are seen", func() bool { return waiters(t, holder, "") == waitedNames })
	if rate := s.calmRate(t, s.admin(t), user); rate > s.waiterRate {
		t.Errorf("%.1f statements a second for %d waiters, want %.1f at most", rate, waitedNames, s.waiterRate)
	}
	for _, leases := range held {
		check(t, leases.Unlock(t.Context()))
	}
	for i, turn := range turns {
		check(t, await.Event(t, turn, fmt.Sprintf("the wake-up of waiter %d", i)))
	}
}

// calmRate measures the statements per second while all callers wait. A server may count late:
// PostgreSQL publishes the statistics of an idle connection after up to ten seconds. So calmRate
// measures more than once; what waiters do all the time shows every time.
func (s target) calmRate(t testing.TB, admin *sql.DB, user string) (rate float64) {
	t.Helper()
	const chances, polls, window = 4, 10, 4 * time.Second
	for range chances {
		before, most := number(t, admin, s.statements), int64(0)
		for range polls {
			most = max(most, number(t, admin, s.connections(user)))
			<-time.After(window / polls)
		}
		rate = float64(number(t, admin, s.statements)-before-polls-1) / window.Seconds()
		t.Logf("%d waiters for as many names: %d connections, %.1f statements a second", waitedNames, most, rate)
		if most > maxConnections {
			t.Errorf("%d connections for %d waiters, want %d at most", most, waitedNames, maxConnections)
		}
		if rate <= s.waiterRate {
			break
		}
	}
	return rate
}

// waiters counts the waiters for names that begin with the prefix.
func waiters(t testing.TB, c *dlock.Client, prefix string) (n int) {
	t.Helper()
	for info, err := range c.Locks(t.Context(), prefix) {
		check(t, err)
		n += info.Waiters
	}
	return n
}

func TestWakeUp(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) { s.wakeUp(t) })
}

// wakeUp checks that a waiter is woken by a release of another process's store long
// before the lock would have expired, also after all connections were lost.
func (s target) wakeUp(t *testing.T) {
	t.Helper()
	holder, waiter := s.client(t), s.client(t)
	admin := s.admin(t)
	for round := range 4 {
		name := fmt.Sprint("name/", round) // that others waited for the last one may be seen for a moment
		ttl := dlock.WithTTL(10 * limit)   // without being woken, the waiter would try again after the limit
		lease, err := holder.Lock(within(t), name, ttl)
		check(t, err)
		granted := lockAndUnlock(within(t), waiter, name, ttl)
		await.Until(t, "a waiter is seen", func() bool { return waiters(t, holder, name) == 1 })
		if round%2 == 1 {
			check(t, s.kill(t.Context(), admin))
		}
		mustUnlockFor(t, lease, granted)
	}
}

// TestExpiredPlace: a waiter that let its place expire begins at the end of the queue.
func TestExpiredPlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, later := s.open(t), s.open(t) // the first one remembers the place
		grants := acquire(t, store, "x")
		first, second := fairRequest("x"), fairRequest("x")
		mustBeHeld(t, store, first)
		mustBeHeld(t, store, second)
		run(t, s.admin(t), "UPDATE dlock_queue SET expires = 0 WHERE owner = '"+first.Owner.Hex()+"'")
		mustBeHeld(t, later, first)
		release(t, store, grants...)
		mustBeHeld(t, later, first)
		grant, err := later.Acquire(within(t), second)
		check(t, err)
		release(t, later, grant)
	})
}

// TestLatePlace: a place in the queue is kept for as long as its owner asked, although a
// request of the owner for less is carried out later.
func TestLatePlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		first, second := s.open(t), s.open(t)
		acquire(t, first, "x")
		waiter := fairRequest("x")
		mustBeHeld(t, first, waiter) // which knows then that it has a place
		waiter.TTL = lateTTL
		mustBeHeld(t, second, waiter)
		<-time.After(2 * lateTTL)
		if names, err := column[string](t.Context(), s.admin(t), s.queued); err != nil || len(names) == 0 {
			t.Errorf("the places in the queue: %q, %v; want that of %q", names, err, waiter.Name)
		}
	})
}
