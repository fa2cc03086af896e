package sqlsession_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestOneConnection: a pool of one connection is enough, or the error says that it is not.
func TestOneConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		db := s.open(t)
		db.SetMaxOpenConns(1)
		store := s.store(t, db)
		first := mustAcquire(t, store, request("first"))
		limit := await.Limit
		if s.scheme == sqlsession.ForUpdate {
			limit = 300 * time.Millisecond // nothing will happen
		}
		second, err := store.Acquire(within(t, limit), request("second"))
		if s.scheme == sqlsession.ForUpdate {
			if err == nil || !strings.Contains(err.Error(), "all 1 connections of the pool are in use; forupdate needs one per lock") {
				t.Errorf("a second lock in a pool of one connection: %v", err)
			}
			if !driver.Unchanged(err) {
				t.Error("an attempt without a connection has to be undone, which takes a connection, too")
			}
			mustRelease(t, store, first)
			second = mustAcquire(t, store, request("second"))
			mustRelease(t, store, second)
			return
		}
		if err != nil {
			t.Fatalf("a second lock on the same connection: %v", err)
		}
		elsewhere := s.store(t, s.open(t))
		waiting := dlock.New(store, nil)
		defer waiting.Close()
		other := mustAcquire(t, elsewhere, request("other"))
		got := make(chan error, 1)
		go func() { got <- waiting.Do(t.Context(), "other", func(context.Context) error { return nil }) }()
		mustRelease(t, elsewhere, other)
		if err := <-got; err != nil {
			t.Errorf("waiting with a pool of one connection: %v", err)
		}
		mustRelease(t, store, second)
		mustRelease(t, store, first)
	})
}

// TestSilentConnectionOfOne: the only connection of a pool dies without a sign. Its successor, which
// other callers keep busy, does not keep the store from ending the session: the lock can be had again.
func TestSilentConnectionOfOne(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		db := s.openDB(t, p.Addr())
		db.SetMaxOpenConns(1)
		store := s.store(t, db)
		held, lost := losable("x")
		mustAcquire(t, store, held)
		p.Blackhole()
		await.Event(t, lost, "the loss is reported")
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		defer others.Wait()
		defer stop()
		for i := range 4 {
			others.Go(func() {
				for ctx.Err() == nil {
					if grant, err := store.Acquire(ctx, request(fmt.Sprint("other ", i))); err == nil {
						_ = store.Release(ctx, grant) // the test may have ended
					}
				}
			})
		}
		mayGet(t, store, request("x"), "the lock can be had again")
	})
}

// TestCloseReturnsEverything: no connection and no lock is left.
func TestCloseReturnsEverything(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		db := s.open(t)
		store, elsewhere := s.store(t, db), s.store(t, s.open(t))
		for i := range 10 {
			mustAcquire(t, store, request(fmt.Sprint(i)))
		}
		check(t, store.Close())
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use after Close", n)
		}
		for i := range 10 {
			mustRelease(t, elsewhere, mustAcquire(t, elsewhere, request(fmt.Sprint(i))))
		}
		if _, err := store.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Acquire after Close: %v", err)
		}
	})
}

// TestTokensNotYetOnDisk: a token that was granted before the server had written the
// sequence is not granted again after a crash.
func TestTokensNotYetOnDisk(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		if d.dialect != sqlsession.Postgres {
			continue
		}
		// The server writes to the disk only at the end of a transaction.
		s := d.alone(sqlsession.Session, servers.Run(t, d.kind, "-c", "wal_writer_delay=10s", "-c", "autovacuum=off"))
		stores := []*sqlsession.Store{s.store(t, s.open(t)), s.store(t, s.open(t))}
		last := uint64(0)
		rises := func(store *sqlsession.Store) {
			t.Helper()
			grant := mustAcquire(t, store, request("x"))
			if grant.Token <= last {
				t.Errorf("token %d was granted after %d", grant.Token, last)
			}
			last = grant.Token
			mustRelease(t, store, grant)
		}
		for range 2 {
			for _, store := range stores {
				rises(store)
			}
			tx, err := s.open(t).BeginTx(t.Context(), nil)
			check(t, err)
			order(t, tx, "SELECT nextval('dlock_fence') FROM generate_series(1, 100)")
			for _, store := range stores {
				rises(store)
			}
			s.crash(t)
		}
		for _, store := range stores {
			rises(store)
		}
	}
}

// TestNumbersAreSkippedOnce: the first session skips numbers, and no other one does while
// sessions draw tokens.
func TestNumbersAreSkippedOnce(t *testing.T) {
	t.Parallel()
	s := sessionOnPostgres(t)
	store := s.store(t, s.open(t))
	before := mustAcquire(t, store, request("x"))
	for range 5 {
		s.store(t, s.open(t))
	}
	if after := mustAcquire(t, store, request("y")); after.Token != before.Token+1 {
		t.Errorf("token %d was granted after %d, and nothing but stores that were opened is between", after.Token, before.Token)
	}
}

// TestTokensWithClockSetBack: a server that was killed grants larger tokens than before, also if its clock
// was set back meanwhile.
func TestTokensWithClockSetBack(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, scheme := range schemes {
			t.Run(d.kind.Name+"/"+scheme.String(), func(t *testing.T) {
				t.Parallel()
				s := d.alone(scheme, servers.Run(t, servers.WithClock(d.kind)))
				last := uint64(0)
				for _, offset := range []time.Duration{0, 0, -time.Hour, time.Hour, -time.Hour} {
					check(t, s.server.SetClock(offset))
					s.crash(t)
					one, two := s.store(t, s.open(t)), s.store(t, s.open(t))
					for range 10 {
						for _, store := range []*sqlsession.Store{one, two} {
							grant := mustAcquire(t, store, request("x"))
							if grant.Token <= last {
								t.Errorf("token %d was granted after %d, with a clock that is off by %v", grant.Token, last, offset)
							}
							last = grant.Token
							mustRelease(t, store, grant)
						}
					}
				}
			})
		}
	}
}

// TestRefusalNamesHolder: with forupdate a refusal names the holder and its token.
func TestRefusalNamesHolder(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, elsewhere := s.store(t, s.open(t)), s.store(t, s.open(t))
		req := request("x")
		req.Holder = driver.Holder{Host: "here", PID: 1, Program: "it's \"quoted\"", Note: "日本語"}
		grant := mustAcquire(t, store, req)
		_, err := store.Acquire(t.Context(), request("x"))
		inside, refused := errors.AsType[*driver.HeldError](err)
		if !refused || inside.Token != grant.Token || inside.Holder != req.Holder || inside.Remaining <= 0 {
			t.Errorf("the holder's own store says %+v, %v", inside, err)
		}
		_, err = elsewhere.Acquire(t.Context(), request("x"))
		outside, refused := errors.AsType[*driver.HeldError](err)
		if !refused {
			t.Fatalf("Acquire of a lock that is held: %v", err)
		}
		if s.scheme == sqlsession.ForUpdate && (outside.Token != grant.Token || outside.Holder != req.Holder) {
			t.Errorf("another store says %+v, want token %d of %v", outside, grant.Token, req.Holder)
		}
		mustRelease(t, store, grant)
	})
}

// TestConnectionsGoBackAsTheyWere: a connection goes back to the pool with the settings that
// it had.
func TestConnectionsGoBackAsTheyWere(t *testing.T) {
	eachServer(t, func(t *testing.T, d database) *servers.Server { return servers.Run(t, d.kind, d.short...) }, func(t *testing.T, s setup) {
		if s.scheme != sqlsession.ForUpdate {
			return // its connection never goes back
		}
		db := s.open(t)
		db.SetMaxOpenConns(1)
		text := "SELECT CONCAT(@@wait_timeout, @@idle_transaction_timeout)"
		if s.driver == "pgx" {
			text = "SELECT current_setting('idle_in_transaction_session_timeout') || current_setting('idle_session_timeout')"
		}
		settings := func() (values string) {
			t.Helper()
			check(t, db.QueryRowContext(t.Context(), text).Scan(&values))
			return values
		}
		before := settings()
		store := s.store(t, db)
		mustRelease(t, store, mustAcquire(t, store, request("x")))
		if after := settings(); after != before {
			t.Errorf("before %s, after %s", before, after)
		}
	})
}

// TestNewNamesBesideHeldOnes: locks that are held do not block new names, also if their rows
// are beside each other.
func TestNewNamesBesideHeldOnes(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, elsewhere := s.store(t, s.open(t)), s.store(t, s.open(t))
		note := strings.Repeat("x", 1000) // few rows fill a page
		for i := range 500 {
			req := request(fmt.Sprint("new ", i))
			req.Holder.Note = note
			grant := mustAcquire(t, elsewhere, req)
			mustRelease(t, elsewhere, grant)
			if i%10 == 0 {
				mustAcquire(t, store, req)
			}
		}
	})
}

// TestCloseKillsNoConnectionOfThePool: a connection that a Release gives back to the program's pool while
// Close begins belongs to the program.
func TestCloseKillsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.ForUpdate)
	db := s.open(t)
	db.SetMaxIdleConns(50)
	for range 20 {
		store := s.store(t, db)
		var grants []driver.Grant
		for i := range 8 {
			grants = append(grants, mustAcquire(t, store, request(fmt.Sprint(i))))
		}
		var releases sync.WaitGroup
		for _, grant := range grants {
			releases.Go(func() { _ = store.Release(t.Context(), grant) })
		}
		_ = backoff.Sleep(t.Context(), rand.N(time.Millisecond))
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		releases.Wait()
	}
	_ = backoff.Sleep(t.Context(), 100*time.Millisecond) // a session that was killed is counted when it ends
	var killed int
	err := db.QueryRowContext(t.Context(), "SELECT sessions_killed FROM pg_stat_database WHERE datname = current_database()").Scan(&killed)
	if err != nil || killed > 0 {
		t.Errorf("Close killed %d sessions, %v", killed, err)
	}
}
