package sqlite

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// step makes the database believe that its clock was set forward by that much,
// by moving every time in it back.
func step(t *testing.T, db *sql.DB, by time.Duration) {
	t.Helper()
	run(t, db, `UPDATE dlock_locks SET since = since - ?1, expires = expires - ?1`, by.Milliseconds())
}

func clockClients(t *testing.T) (db *sql.DB, holder, rival *dlock.Client) {
	path := tempFile(t)
	_, holder = openOwn(t, path, nil)
	_, rival = openOwn(t, path, nil)
	return openDB(t, path), holder, rival
}

// A wall clock that is set forward ends a lock early. The token tells the two
// holders apart, and the first one finds out at its next renewal.
func TestClockStepsForward(t *testing.T) {
	t.Parallel()
	db, holder, rival := clockClients(t)
	lease, err := holder.Lock(t.Context(), "x", dlock.WithTTL(12*time.Second))
	check(t, err)
	step(t, db, time.Hour)
	next, err := rival.TryLock(t.Context(), "x")
	if err != nil {
		t.Fatalf("the lock did not end with the step: %v", err)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(11 * time.Second): // before the TTL has passed
		t.Error("the first holder did not find out within a renewal")
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock of the first holder: %v", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of the second holder: %v", err)
	}
}

// A wall clock that is set back makes a lock whose holder is dead last longer.
// It can be broken.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	db, holder, rival := clockClients(t)
	lease, err := holder.Lock(t.Context(), "x", dlock.WithFixedTTL(time.Second))
	check(t, err)
	step(t, db, -time.Hour)
	<-lease.Context().Done() // here the time is elapsed time
	_, err = rival.TryLock(t.Context(), "x")
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok || held.Remaining < 50*time.Minute {
		t.Fatalf("after a step back: %v", err)
	}
	check(t, rival.Break(t.Context(), "x", held.Token))
	next, err := rival.TryLock(t.Context(), "x")
	if err != nil {
		t.Fatalf("after Break: %v", err)
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
