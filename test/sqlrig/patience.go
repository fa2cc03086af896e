package sqlrig

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"
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
	grant, err := store.Acquire(Within(t), Request("locked"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Release(Within(t), grant); err != nil {
		t.Fatal(err)
	}
	tx, err := d.DB(t, raw).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var token int64
	if err := tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_locks WHERE name = 'locked' FOR UPDATE").Scan(&token); err != nil {
		t.Fatal(err)
	}
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
	if err := tx.Rollback(); err != nil {
		t.Error(err)
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
