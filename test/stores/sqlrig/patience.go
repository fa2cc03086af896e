package sqlrig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// PatientWriters checks that a process whose writes all wait, here because an
// administrator has locked the row, waits for them and does not use up a processor.
func (d *Database) PatientWriters(t *testing.T, raw string) {
	t.Helper()
	store, err := d.Store(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	unlock := d.lockRows(t, raw, store, "locked")
	// The first ones write each for itself, and have given up when the others, who
	// have come meanwhile, write together.
	const first, writers, limit = 2, 4, time.Second
	var all sync.WaitGroup
	write := func(limit time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, err := store.Acquire(ctx, Request("locked")); err == nil {
			t.Error("a row that is locked was written")
		}
	}
	before := processorTime(t)
	for i := range first + writers {
		if i == first {
			<-time.After(limit / 10)
		}
		all.Go(func() { write(limit / 4 * time.Duration(1+3*min(1, i/first))) })
	}
	all.Wait()
	if used := processorTime(t) - before; used > limit/4 {
		t.Errorf("%d writers that waited for %v used a processor for %v", writers, limit, used)
	}
	unlock()
}

// RenewalsComeThrough shows that a lock can be renewed while everything else that
// the process writes waits for rows that another transaction keeps locked.
func (d *Database) RenewalsComeThrough(t *testing.T, raw string) {
	t.Helper()
	store := d.Opened(t, raw)
	kept, err := store.Acquire(Within(t), Request("kept"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"x", "y"} // as many as write at once
	unlock := d.lockRows(t, raw, store, wanted...)
	admin := d.DB(t, raw)
	var all sync.WaitGroup
	defer all.Wait()
	defer unlock()
	for i, name := range wanted { // one after the other, or they would write together
		all.Go(func() {
			if _, err := store.Acquire(Within(t), Request(name)); err != nil {
				t.Errorf("Acquire(%q) when its row is free again: %v", name, err)
			}
		})
		Eventually(t, "a writer waits for a row", func() bool {
			var n int
			if err := admin.QueryRowContext(t.Context(), d.Blocked).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == i+1
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if errs := store.Renew(ctx, []driver.Grant{kept}); errs != nil {
		t.Errorf("Renew of a lock whose row nobody keeps locked: %v", errs[0])
	}
}

// lockRows makes rows of free locks, and locks them as an administrator
// might, until unlock is called.
func (d *Database) lockRows(t *testing.T, raw string, store driver.Store, names ...string) (unlock func()) {
	t.Helper()
	tx, err := d.DB(t, raw).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		grant, err := store.Acquire(Within(t), Request(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Release(Within(t), grant); err != nil {
			t.Fatal(err)
		}
		var token int64
		if err := tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_locks WHERE name = '"+name+"' FOR UPDATE").Scan(&token); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// processorTime is what this process has used of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// RenewalsBesideALockedRow shows that a transaction which keeps the row of one lock
// locked keeps that lock from being renewed, and none of the locks that are renewed with it.
func (d *Database) RenewalsBesideALockedRow(t *testing.T, raw string) {
	t.Helper()
	const locks, blocked = 20, 10
	store := d.Opened(t, raw)
	var grants []driver.Grant
	for i := range locks {
		grant, err := store.Acquire(Within(t), Request(fmt.Sprintf("lock %02d", i)))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, grant)
	}
	tx, err := d.DB(t, raw).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has only read
	var token int64
	if err := tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_locks WHERE name = '"+grants[blocked].Name+"' FOR UPDATE").Scan(&token); err != nil {
		t.Fatal(err)
	}
	gone := grants[0]
	if err := store.Release(Within(t), gone); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	errs := store.Renew(ctx, grants)
	if len(errs) != locks {
		t.Fatalf("Renew: %v; want an error for each", errs)
	}
	for i, err := range errs {
		switch {
		case i == blocked && (err == nil || errors.Is(err, driver.ErrNotHeld)):
			t.Errorf("Renew of a lock whose row is locked: %v; want that the outcome is unknown", err)
		case i == 0 && !errors.Is(err, driver.ErrNotHeld):
			t.Errorf("Renew of a lock that was released: %v; want ErrNotHeld", err)
		case i != blocked && i != 0 && err != nil:
			t.Errorf("Renew of %q, whose row nobody keeps locked: %v", grants[i].Name, err)
		}
	}
}
