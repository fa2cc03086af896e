package sqlsession_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// eachCleaned runs a test on every server for the scheme that has a janitor. age makes all rows
// two hours older, so that the janitor of the next store runs.
func eachCleaned(t *testing.T, test func(t *testing.T, s setup, db *sql.DB, age func())) {
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.alone(sqlsession.ForUpdate, servers.Run(t, servers.WithClock(d.kind)))
			offset := time.Duration(0)
			test(t, s, s.open(t), func() {
				t.Helper()
				offset += 2 * time.Hour
				check(t, s.server.SetClock(offset))
			})
		})
	}
}

func number(t testing.TB, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// TestJanitor: the janitor deletes rows that were not used for long, and their names come back
// with higher tokens.
func TestJanitor(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, db *sql.DB, age func()) {
		store := s.store(t, s.open(t))
		const names = 250 // more than the janitor deletes at once
		for i := range names {
			mustRelease(t, store, mustAcquire(t, store, request(fmt.Sprint("name/", i))))
		}
		for range 9 {
			mustRelease(t, store, mustAcquire(t, store, request("name/7")))
		}
		held := []driver.Grant{mustAcquire(t, store, request("held")), mustAcquire(t, store, request("held too"))}
		age()
		mustRelease(t, store, mustAcquire(t, store, request("young")))
		mustRelease(t, store, mustAcquire(t, store, request("name/8")))

		other := s.store(t, s.open(t))
		await.Until(t, "the unused rows are deleted", func() bool {
			return number(t, db, "SELECT count(*) FROM dlock_bound") <= 5
		})
		if n := number(t, db, "SELECT count(*) FROM dlock_bound"); n != 5 {
			t.Errorf("%d rows are left, want two that are held, two that were used, and the floor", n)
		}
		if floor := number(t, db, "SELECT token FROM dlock_bound WHERE k = 'floor'"); floor != 10 {
			t.Errorf("the floor is %d, want the highest token that was deleted, 10", floor)
		}
		for name, token := range map[string]uint64{"name/7": 11, "name/9": 11, "never seen": 11, "name/8": 3} {
			if grant := mustAcquire(t, other, request(name)); grant.Token != token {
				t.Errorf("%q has token %d now, want %d", name, grant.Token, token)
			}
		}
		for _, grant := range held { // for longer than rows are kept
			if _, err := other.Acquire(t.Context(), request(grant.Name)); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire of %q, which is held: %v", grant.Name, err)
			}
			mustRelease(t, store, grant)
			if next := mustAcquire(t, other, request(grant.Name)); next.Token <= grant.Token {
				t.Errorf("%q has token %d after %d", grant.Name, next.Token, grant.Token)
			}
		}
	})
}

// TestJanitorWithOddSettings: the janitor deletes all rows although NOT refers to another operand, an empty
// text is NULL, or queries answer with few rows only.
func TestJanitorWithOddSettings(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, db *sql.DB, age func()) {
		if s.dialect != sqlsession.MySQL {
			return // PostgreSQL has no such setting
		}
		store := s.store(t, s.open(t))
		for _, setting := range []string{"sql_mode=%27HIGH_NOT_PRECEDENCE%27", "sql_mode=%27EMPTY_STRING_IS_NULL%27", "sql_select_limit=15"} {
			for i := range 20 {
				mustRelease(t, store, mustAcquire(t, store, request(fmt.Sprint("name/", i))))
			}
			age()
			cleaner, err := openDSN(t.Context(), s.database, s.dsn(s.server.Addr(), s.name)+"?"+setting, s.scheme)
			check(t, err)
			await.Until(t, "only the floor is left with "+setting, func() bool { return number(t, db, "SELECT count(*) FROM dlock_bound") == 1 })
			if err := cleaner.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestJanitorOverSilentConnection: a janitor whose connection has died without a sign gives it up,
// and with it its place in the pool.
func TestJanitorOverSilentConnection(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, _ *sql.DB, age func()) {
		store := s.store(t, s.open(t))
		mustRelease(t, store, mustAcquire(t, store, request("old")))
		age()
		p := proxy.Run(t, s.server.Addr())
		silent := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("dlock_bound SET used")) }, (*proxy.Conn).Hold)
		db := s.openDB(t, p.Addr())
		db.SetMaxOpenConns(1)
		other := s.store(t, db)
		await.Event(t, silent, "the janitor")
		await.Until(t, "the connection of the janitor is given up", func() bool {
			_, err := other.Acquire(within(t, time.Second), request("new"))
			return err == nil
		})
	})
}

// TestTokensRiseAcrossJanitorRuns: the janitor runs again and again while others lock and unlock.
// No caller notices it, not even one that does not wait.
func TestTokensRiseAcrossJanitorRuns(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, db *sql.DB, age func()) {
		store := s.store(t, s.open(t))
		stop := faults.WatchTokens(t, store, 2, 50, request)
		defer stop()
		for raised := 0; raised < 8; {
			const floor, cleaned = "SELECT token FROM dlock_bound WHERE k = 'floor'", "SELECT used FROM dlock_bound WHERE k = 'floor'"
			before, last := number(t, db, floor), number(t, db, cleaned)
			age()
			// A janitor that collides with others gives up, and the next store tries.
			var cleaner driver.Store
			await.Until(t, "a janitor runs", func() bool {
				if cleaner != nil {
					check(t, cleaner.Close())
				}
				var err error
				if cleaner, err = s.openOwned(t.Context()); err != nil {
					t.Fatal(err)
				}
				for tries := 0; tries < 100 && number(t, db, cleaned) <= last; tries++ {
					<-time.After(10 * time.Millisecond)
				}
				return number(t, db, cleaned) > last
			})
			await.Until(t, "no old row is left", func() bool {
				return number(t, db, "SELECT count(*) FROM dlock_bound AS r JOIN dlock_bound AS f ON f.k = 'floor' WHERE r.used <= f.used - 3600000") == 0
			})
			check(t, cleaner.Close())
			if number(t, db, floor) > before {
				raised++
			}
		}
	})
}

// TestAcquireWhileJanitorRuns: an attempt for a name whose row is being deleted, or that has no
// row yet, waits until it is known where its token begins.
func TestAcquireWhileJanitorRuns(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, db *sql.DB, age func()) {
		store := s.store(t, s.open(t))
		mustRelease(t, store, mustAcquire(t, store, request("old")))
		age()
		tx, err := db.BeginTx(t.Context(), nil)
		check(t, err)
		order(t, tx, "UPDATE dlock_bound SET token = 50 WHERE k = 'floor'", "DELETE FROM dlock_bound WHERE k <> 'floor'")
		granted := make(chan driver.Grant)
		for _, name := range []string{"old", "new"} {
			go func() {
				var grant driver.Grant
				err, took := driver.ErrUnreachable, await.Limit
				for tries := 0; tries < 5 && errors.Is(err, driver.ErrUnreachable) && took > time.Second; tries++ { // it waits for two seconds
					began := time.Now()
					grant, err = store.Acquire(t.Context(), request(name))
					took = time.Since(began)
				}
				if err != nil {
					t.Errorf("Acquire of %q: %v", name, err)
				}
				granted <- grant
			}()
		}
		select {
		case grant := <-granted:
			t.Fatalf("%q got token %d before the janitor had ended", grant.Name, grant.Token)
		case <-time.After(300 * time.Millisecond):
		}
		check(t, tx.Commit())
		for range 2 {
			if grant := <-granted; grant.Token != 51 {
				t.Errorf("%q got token %d, want the one above the floor, 51", grant.Name, grant.Token)
			}
		}
	})
}

// TestNewNameBesideALockedFloor: another program keeps the floor locked, which new names begin at. An
// attempt for a new name ends soon and says why: it has a slot of the attempts for all names.
func TestNewNameBesideALockedFloor(t *testing.T) {
	t.Parallel()
	eachCleaned(t, func(t *testing.T, s setup, db *sql.DB, _ func()) {
		store := s.store(t, s.open(t))
		tx, err := db.BeginTx(t.Context(), nil)
		check(t, err)
		defer tx.Rollback()
		var token int64
		check(t, tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_bound WHERE k = 'floor' FOR UPDATE").Scan(&token))
		ctx := within(t, 8*time.Second)
		if _, err := store.Acquire(ctx, request("new")); !errors.Is(err, driver.ErrUnreachable) || ctx.Err() != nil {
			t.Errorf("Acquire of a new name beside a locked floor: %v (context: %v); want ErrUnreachable before the context ends", err, ctx.Err())
		}
	})
}
