package fence

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/sqllock"
)

// The holder is paused after it has checked its lease, which expires meanwhile.
func TestStaleHolderIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		orders := db.orders(t)
		path := filepath.Join(t.TempDir(), "locks.db")
		first, second := newClient(t, path), newClient(t, path)

		stale, err := first.Lock(t.Context(), "orders/42", dlock.WithFixedTTL(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := orders.Do(t.Context(), db, 42, stale.Token(), set(t, "packed")); err != nil {
			t.Fatalf("the holder writes: %v", err)
		}
		lease, err := second.Lock(t.Context(), "orders/42") // waits for the expiry
		if err != nil {
			t.Fatal(err)
		}
		if err := orders.Do(t.Context(), db, 42, lease.Token(), set(t, "paid")); err != nil {
			t.Fatalf("the new holder writes: %v", err)
		}

		err = orders.Do(t.Context(), db, 42, stale.Token(), set(t, "cancelled"))
		refused, ok := errors.AsType[*fence.StaleError](err)
		if !ok || !errors.Is(err, fence.ErrStale) || refused.Token != stale.Token() || refused.Seen != lease.Token() {
			t.Errorf("the stale holder writes: %v; want that token %d is rejected after %d", err, stale.Token(), lease.Token())
		}
		db.order(t, "paid", lease.Token())
		if err := orders.Do(t.Context(), db, 42, lease.Token(), set(t, "sent")); err != nil {
			t.Errorf("the new holder writes again: %v", err)
		}
		db.order(t, "sent", lease.Token())
		if err := stale.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock by the stale holder: %v", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func newClient(t *testing.T, path string) *dlock.Client {
	t.Helper()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	client := dlock.New(store, nil)
	t.Cleanup(func() { client.Close() })
	return client
}

// Many writers write at the same time, in any order.
func TestConcurrentWritersNeverGoBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		orders := db.orders(t)
		serial := map[fence.Dialect]string{
			fence.SQLite:     "INTEGER PRIMARY KEY",
			fence.MySQL:      "BIGINT AUTO_INCREMENT PRIMARY KEY",
			fence.PostgreSQL: "BIGSERIAL PRIMARY KEY",
		}[db.dialect]
		db.must(t, "CREATE TABLE history (at "+serial+", token BIGINT NOT NULL)")
		const writers = 8
		const tokens = 200
		db.SetMaxOpenConns(writers)
		queue := make(chan int, tokens)
		for _, i := range rand.Perm(tokens) {
			queue <- i + 1
		}
		close(queue)
		note := map[fence.Dialect]string{fence.PostgreSQL: "INSERT INTO history (token) VALUES ($1)"}[db.dialect]
		if note == "" {
			note = "INSERT INTO history (token) VALUES (?)"
		}
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for token := range queue {
					err := orders.Do(t.Context(), db, 42, uint64(token), func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), note, token)
						return err
					})
					if refused, stale := errors.AsType[*fence.StaleError](err); stale && refused.Seen > uint64(token) {
						continue
					}
					if err != nil {
						t.Errorf("token %d: %v", token, err)
					}
				}
			})
		}
		all.Wait()
		db.order(t, "new", tokens)
		db.rises(t, tokens)
	})
}

// rises checks that the tokens of the writes rise up to the last one.
func (d database) rises(t *testing.T, last int) {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), "SELECT token FROM history ORDER BY at")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	before, count := 0, 0
	for rows.Next() {
		var token int
		if err := rows.Scan(&token); err != nil {
			t.Fatal(err)
		}
		if token <= before {
			t.Errorf("the write of token %d came after that of token %d", token, before)
		}
		before = token
		count++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if before != last {
		t.Errorf("the last write is that of token %d, want %d", before, last)
	}
	t.Logf("%d of %d writes were in time", count, last)
}
