package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// The statements that a lock and an unlock need, without the library.
const (
	bareAcquire = `INSERT INTO dlock_locks AS l (name, token, owner, since, expires, holder)
VALUES (?1, (SELECT value FROM dlock_meta WHERE key = 'floor') + 1, ?2,
	CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER), CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER) + ?3, ?4)
ON CONFLICT (name) DO UPDATE SET token = l.token + 1, since = excluded.since, owner = excluded.owner,
	expires = excluded.expires, holder = excluded.holder
WHERE l.owner IS NULL OR l.expires <= excluded.since
RETURNING token`
	bareRelease = `UPDATE dlock_locks SET owner = NULL, expires = CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER), holder = ''
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires > CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)`
)

// BenchmarkPair compares a lock and an unlock by the store, and by a client of it,
// with the two statements that they need, in turn on one database, by their
// medians.
func BenchmarkPair(b *testing.B) {
	db := openDB(b, tempFile(b))
	store := newStore(b, db)
	pairs := map[string]func(context.Context){
		"bare":  barePair(b, db),
		"store": storePair(b, store),
		"dlock": clientPair(b, store),
	}
	kinds := []string{"bare", "store", "dlock"}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	const block = 50 // pairs of a kind in a row, so that a slow moment hits all kinds
	taken := map[string][]time.Duration{}
	for done := 0; b.Loop(); done++ {
		kind := kinds[done/block%len(kinds)]
		start := time.Now()
		pairs[kind](ctx)
		taken[kind] = append(taken[kind], time.Since(start))
	}
	bare := median(taken["bare"])
	b.ReportMetric(float64(bare.Nanoseconds()), "ns/bare")
	for _, kind := range kinds[1:] {
		b.ReportMetric(float64(median(taken[kind]))/float64(max(bare, 1)), kind+"/bare")
	}
}

// BenchmarkHandOver is a lock that goes from one process to another which waits for it.
func BenchmarkHandOver(b *testing.B) {
	path := tempFile(b)
	store, other := openStore(b, path), startProcess(b, "agent", path)
	var took []time.Duration
	for b.Loop() {
		took = append(took, handOver(b, store, other))
	}
	b.ReportMetric(float64(median(took).Nanoseconds()), "ns/p50")
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func barePair(b *testing.B, db *sql.DB) func(context.Context) {
	prepare := func(text string) *sql.Stmt {
		stmt, err := db.Prepare(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { stmt.Close() })
		return stmt
	}
	acquire, release := prepare(bareAcquire), prepare(bareRelease)
	holder := driver.Holder{Host: "here", PID: 7, Program: "bench"}.Encode()
	return func(ctx context.Context) {
		owner := driver.NewOwner().Hex()
		var token int64
		if err := acquire.QueryRowContext(ctx, "bare", owner, 30_000, holder).Scan(&token); err != nil {
			b.Fatal(err)
		}
		if _, err := release.ExecContext(ctx, "bare", owner, token); err != nil {
			b.Fatal(err)
		}
	}
}

func clientPair(b *testing.B, store *sqllock.Store) func(context.Context) {
	client := dlock.New(store, nil)
	b.Cleanup(func() {
		if err := client.Close(); err != nil {
			b.Error(err)
		}
	})
	return func(ctx context.Context) {
		lease, err := client.Lock(ctx, "dlock")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func storePair(b *testing.B, store *sqllock.Store) func(context.Context) {
	holder := driver.Holder{Host: "here", PID: 7, Program: "bench"}
	return func(ctx context.Context) {
		grant, err := store.Acquire(ctx, driver.Request{Name: "store", Owner: driver.NewOwner(), TTL: 30 * time.Second, Holder: holder})
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Release(ctx, grant); err != nil {
			b.Fatal(err)
		}
	}
}
