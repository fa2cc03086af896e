package sqlite

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestProcessesShareThePolls: a process that waits for the same name as 63 others polls less often
// than one that is alone because they have left or died. The lock is free, so that each poll wakes the
// waiter, and every poll is because the file has changed.
func TestProcessesShareThePolls(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store, db := openStore(t, path), openDB(t, path)
	write := func(text string) {
		t.Helper()
		run(t, db, text)
	}
	write(`CREATE TABLE other (n INTEGER)`)
	var polls atomic.Int64
	stop, err := store.Watch(t.Context(), request("x"), func() { polls.Add(1) })
	check(t, err)
	defer stop()
	pollsIn := func(window time.Duration) int64 {
		before := polls.Load()
		for end := time.Now().Add(window); time.Now().Before(end); <-time.After(time.Millisecond) {
			write(`INSERT INTO other VALUES (1)`)
		}
		return polls.Load() - before
	}
	settled := func() int64 {
		pollsIn(700 * time.Millisecond) // the processes are counted
		return pollsIn(800 * time.Millisecond)
	}
	others := func(owner, mode string, fair int, ttl time.Duration) {
		write(fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 63)
			INSERT INTO dlock_queue (name, owner, mode, fair, expires)
			SELECT 'x', format('%s', i), '%s', %d, unixepoch('subsec') * 1000 + %d FROM n`, owner, mode, fair, ttl.Milliseconds()))
	}
	others("process %d", "none", 0, 30*time.Second)
	var shared, alone int64
	for range 5 { // a machine that is busy makes few polls
		if shared = settled(); shared > 0 {
			break
		}
	}
	write(`DELETE FROM dlock_queue WHERE owner LIKE 'process %'`)
	// Of these none polls instead of this process.
	others("killed %d", "none", 0, 15*time.Second)
	others("before the clock stepped back %d", "none", 0, time.Hour)
	others("fair %d", "exclusive", 1, 30*time.Second)
	others("place %d", "exclusive", 0, 30*time.Second)
	for range 5 {
		if alone = settled(); shared > 0 && alone > 3*shared {
			return
		}
	}
	t.Errorf("with 63 other processes that poll %d polls, alone %d; want some, but less than a third", shared, alone)
}
