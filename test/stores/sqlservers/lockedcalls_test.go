package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// In these tests an administrator's open transaction keeps rows locked, and calls about other rows go on.

// TestRenewalsInBothModesBesideALockedRow: a transaction that keeps the row of an exclusive lock locked
// does not delay the renewal of shared locks in the same call.
func TestRenewalsInBothModesBesideALockedRow(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store := s.open(t)
		grants := acquire(t, store, "exclusive")
		share, err := store.Acquire(within(t), requestIn(shared, "shared"))
		check(t, err)
		defer lockRows(t, s.admin(t), "dlock_locks", "exclusive")()
		renew := func() []error {
			// It is less than a renewal waits for a row at the server.
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			return store.Renew(ctx, append(grants, share))
		}
		errs := renew()
		for tries := 1; tries < 3 && len(errs) == 2 && errors.Is(errs[1], driver.ErrUnreachable); tries++ { // a busy machine may be too slow once
			errs = renew()
		}
		if len(errs) != 2 || errs[1] != nil || errs[0] == nil || errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("Renew: %v; want an unknown outcome for the lock whose row is locked, and nil for the other", errs)
		}
	})
}

// TestCallsBesideLockedRows: a transaction keeps as many rows of free locks locked as a process writes at
// once. The attempts for these names do not keep calls about other names waiting.
func TestCallsBesideLockedRows(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		locked := []string{"x", "y"}
		unlock := lockFreeLocks(t, admin, store, locked...)
		var all sync.WaitGroup
		defer all.Wait()
		defer unlock()
		for i, name := range locked { // one after the other, or they would write together
			all.Go(func() {
				for err := driver.ErrUnreachable; errors.Is(err, driver.ErrUnreachable); { // as a waiter does
					_, err = store.Acquire(within(t), request(name))
				}
			})
			s.waitBlocked(t, admin, int64(i+1))
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			grant, err := store.Acquire(ctx, request("other"))
			if err != nil {
				t.Fatalf("Acquire of a lock whose row is not locked: %v", err)
			}
			if err := store.Release(ctx, grant); err != nil {
				t.Fatalf("Release of a lock whose row is not locked: %v", err)
			}
		}
	})
}

// TestAbandonedAttempt: the server ends an attempt whose caller has left, although the row stays locked.
func TestAbandonedAttempt(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		a := s.abandonment(t)
		defer lockFreeLocks(t, a.admin, a.direct, "a")()
		a.leave(t, func(ctx context.Context) error {
			_, err := a.store.Acquire(ctx, request("a"))
			return err
		})
		s.waitBlocked(t, a.admin, 0)
	})
}

// TestPlacesBesideALockedPlace: a transaction that keeps the place of one waiter locked keeps no other waiter
// of the process from renewing its place.
func TestPlacesBesideALockedPlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		acquire(t, store, "a", "b")
		const ttl = 8 * time.Second
		first, second := fairRequest("a"), fairRequest("b")
		first.TTL, second.TTL = ttl, ttl
		for _, req := range []driver.Request{first, second} {
			mustBeHeld(t, store, req)
		}
		placeOfSecond := func() int64 {
			return number(t, admin, "SELECT coalesce(min(seq), 0) FROM dlock_queue WHERE name = 'b'")
		}
		before := placeOfSecond()
		defer lockRows(t, admin, "dlock_queue", "a")()
		for start := time.Now(); time.Since(start) < ttl*3/2; <-time.After(ttl / 20) {
			reqs := []driver.Request{first, second}
			if time.Since(start) > ttl/2 { // later the place of the first waiter may have expired
				reqs = reqs[1:]
			}
			for _, req := range reqs {
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				_, err := store.Acquire(ctx, req)
				cancel()
				if !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("Acquire(%q) beside a locked place: %v; want ErrHeld", req.Name, err)
				}
			}
		}
		if after := placeOfSecond(); after != before || before == 0 {
			t.Errorf("the waiter has place %d, and had %d", after, before)
		}
	})
}

// TestPlacesBesideALockedExpiredPlace: the same if that place has expired in the database, but not yet by the
// clock of the store.
func TestPlacesBesideALockedExpiredPlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		admin := s.admin(t)
		check(t, s.open(t).Close()) // it creates the tables
		// The janitor, which would delete the place, has just run.
		run(t, admin, fmt.Sprint("UPDATE dlock_meta SET value = ", time.Now().Add(-time.Minute).UnixMilli()))
		store := s.open(t)
		acquire(t, store, "a", "b")
		const ttl = 8 * time.Second
		first, second := fairRequest("a"), fairRequest("b")
		first.TTL, second.TTL = ttl, ttl
		for _, req := range []driver.Request{first, second, first, second} { // they take places, and come again
			mustBeHeld(t, store, req)
		}
		run(t, admin, "UPDATE dlock_queue SET expires = 0 WHERE name = 'a'")
		defer lockRows(t, admin, "dlock_queue", "a")()
		<-time.After(ttl / 4) // the places are due
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
		defer cancel()
		if _, err := store.Acquire(ctx, second); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire beside a locked place that has expired: %v; want ErrHeld", err)
		}
	})
}

// TestJanitorBesideALockedPlace: a transaction that keeps an expired place locked does not keep old rows.
func TestJanitorBesideALockedPlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		admin := s.admin(t)
		check(t, s.open(t).Close()) // it creates the tables
		run(t, admin, `UPDATE dlock_meta SET value = 0`,
			`INSERT INTO dlock_locks (name, token, since, expires, holder) VALUES ('old', 1, 0, 0, '{}')`,
			`INSERT INTO dlock_queue (name, owner, mode, fair, expires) VALUES ('old', 'a', 'exclusive', true, 0)`)
		defer lockRows(t, admin, "dlock_queue", "old")()
		s.open(t) // its janitor runs at once
		await.Until(t, "the old row is deleted", func() bool {
			return number(t, admin, `SELECT COUNT(*) FROM dlock_locks WHERE name = 'old'`) == 0
		})
		s.waitBlocked(t, admin, 0)
	})
}
