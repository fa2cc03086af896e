package sqlsession_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// behindProxy returns a store whose connections the test can disturb.
func (s setup) behindProxy(t *testing.T) (driver.Store, *proxy.Proxy) {
	t.Helper()
	p := proxy.Run(t, s.server.Addr())
	store, err := s.openAt(t.Context(), p.Addr())
	check(t, err)
	t.Cleanup(func() {
		p.Deliver()
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return store, p
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// releaseOverSilence acquires a lock over a connection that then dies without a sign, and demands that
// Release ends its session over a new one: the lock is free when Release returns nil.
func (s setup) releaseOverSilence(t *testing.T, store driver.Store, p *proxy.Proxy) {
	t.Helper()
	elsewhere := s.store(t, s.open(t))
	grant := mustAcquire(t, store, request("x"))
	p.Blackhole()
	if err := store.Release(within(t, await.Limit), grant); err != nil {
		t.Fatalf("Release over a silent connection: %v", err)
	}
	mustRelease(t, elsewhere, mustAcquire(t, elsewhere, request("x")))
}

// TestReleaseOverSilentConnection: also if the pool has other connections that died.
func TestReleaseOverSilentConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		mustRelease(t, store, mustAcquire(t, store, request("idle")))
		s.releaseOverSilence(t, store, p)
		mustRelease(t, store, mustAcquire(t, store, request("x")))
	})
}

// TestReleaseAfterAStepOfTheClock is the same for a connection that is younger than its session by the
// server's clock, which was set back.
func TestReleaseAfterAStepOfTheClock(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.alone(sqlsession.ForUpdate, servers.Run(t, servers.WithClock(d.kind)))
			check(t, s.server.SetClock(time.Hour))
			store, p := s.behindProxy(t)
			mustRelease(t, store, mustAcquire(t, store, request("idle"))) // now the pool has a connection
			check(t, s.server.SetClock(0))
			s.releaseOverSilence(t, store, p)
		})
	}
}

// TestReleaseWithFewDigits is the same on a PostgreSQL that shows numbers with few digits.
func TestReleaseWithFewDigits(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	digits, now := 9, float64(time.Now().Unix())
	for ; digits > 0; digits-- { // so few that the time is rounded down by more than a second
		if shown, err := strconv.ParseFloat(strconv.FormatFloat(now, 'g', digits, 64), 64); err == nil && shown < now-1 {
			break
		}
	}
	p := proxy.Run(t, s.server.Addr())
	store, err := openDSN(t.Context(), s.database, fmt.Sprintf("%s&extra_float_digits=%d", s.dsn(p.Addr(), s.name), digits-15), s.scheme)
	check(t, err)
	defer store.Close()
	s.releaseOverSilence(t, store, p)
}

// TestLostSessionIsEnded: the store ends the session of a connection that it counts as
// lost, although the holder does not release its lock.
func TestLostSessionIsEnded(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		elsewhere := s.store(t, s.open(t))
		req, lost := losable("x")
		mustAcquire(t, store, req)
		p.Blackhole()
		await.Event(t, lost, "the loss is reported")
		mayGet(t, elsewhere, request("x"), "the lock is free")
	})
}

// otherUsers opens the first connection as one user and all others as another one.
type otherUsers struct {
	base          sqldriver.Driver
	first, others string
	count         atomic.Int64
}

func (c *otherUsers) Driver() sqldriver.Driver { return c.base }

func (c *otherUsers) Connect(context.Context) (sqldriver.Conn, error) {
	if c.count.Add(1) == 1 {
		return c.base.Open(c.first)
	}
	return c.base.Open(c.others)
}

// TestReleaseWithoutTheRightToEndSessions: if the store may not end the session of a silent
// connection, Release returns an error that says when the lock becomes free.
func TestReleaseWithoutTheRightToEndSessions(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		admin := s.open(t)
		p := proxy.Run(t, s.server.Addr())
		user := "plain_" + s.name
		users := &otherUsers{base: admin.Driver(), first: s.dsn(p.Addr(), s.name)}
		if s.driver == "pgx" {
			order(t, admin, "CREATE ROLE "+user+" LOGIN")
			users.others = strings.Replace(users.first, "postgres@", user+"@", 1)
		} else {
			order(t, admin, "CREATE USER "+user+" IDENTIFIED BY 'dlock'")
			order(t, admin, "GRANT SELECT, INSERT, UPDATE, CREATE ON "+s.name+".* TO "+user)
			users.others = strings.Replace(users.first, "dlock:", user+":", 1)
		}
		db := sql.OpenDB(users)
		defer db.Close()
		store, err := sqlsession.New(t.Context(), db, &sqlsession.Options{Dialect: s.dialect})
		check(t, err)
		defer store.Close()
		if s.driver == "pgx" {
			order(t, admin, "GRANT USAGE, SELECT ON SEQUENCE dlock_fence TO "+user)
		}
		grant := mustAcquire(t, store, request("x"))
		p.Blackhole()
		err = store.Release(within(t, 8*time.Second), grant)
		if !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "when it notices that the connection is gone") {
			t.Errorf("Release without the right to end sessions: %v", err)
		}
		if err := store.Release(within(t, time.Second), grant); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("a second Release: %v; want ErrUnreachable", err)
		}
		if _, err := store.Acquire(within(t, time.Second), request("x")); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Acquire before the session has ended: %v; want ErrUnreachable", err)
		}
		p.Reset()
		mayGet(t, store, request("x"), "the lock can be acquired after its connection was reset")
	})
}

// TestSessionOfAnotherStoreIsNotEnded: after a restart of the server another store has a
// session with the same number, which holds the same lock. It is left alone.
func TestSessionOfAnotherStoreIsNotEnded(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		if d.dialect != sqlsession.MySQL {
			continue // the numbers of PostgreSQL's sessions are those of processes
		}
		for _, scheme := range schemes {
			t.Run(scheme.String(), func(t *testing.T) {
				t.Parallel()
				s := d.alone(scheme, servers.Run(t, d.kind))
				number := func(db *sql.DB) (n int64) {
					t.Helper()
					check(t, db.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&n))
					return n
				}
				for number(s.open(t)) < 100 { // more than the server has after its restart
				}
				p := proxy.Run(t, s.server.Addr())
				old, err := sql.Open(s.driver, s.dsn(p.Addr(), s.name))
				check(t, err)
				defer old.Close()
				want := number(old) // the pool keeps it for the store
				store := s.store(t, old)
				grant := mustAcquire(t, store, request("x"))
				p.Blackhole()
				p.Redirect("127.0.0.1:1") // or the store itself may get the number
				check(t, errors.Join(s.server.Kill(), s.server.Restart()))
				var other *sql.DB
				await.Until(t, fmt.Sprintf("a session has the number %d", want), func() bool {
					other = s.open(t)
					return number(other) == want
				})
				p.Redirect(s.server.Addr())
				var lost atomic.Int64
				req := request("x")
				req.Lost = func() { lost.Add(1) }
				holder := s.store(t, other)
				kept := mustAcquire(t, holder, req)
				if err := store.Release(within(t, await.Limit), grant); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Release of a lock that ended with the server: %v; want ErrNotHeld", err)
				}
				if errs := holder.Renew(t.Context(), []driver.Grant{kept}); errs != nil || lost.Load() > 0 {
					t.Errorf("the lock of another store: %v, reported as lost %d times", errs, lost.Load())
				}
			})
		}
	}
}

// TestReleaseInOutage: while the server does not answer, Release reports no success.
func TestReleaseInOutage(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		elsewhere := s.store(t, s.open(t))
		grant := mustAcquire(t, store, request("x"))
		p.Hold()
		for _, limit := range []time.Duration{time.Second, 7 * time.Second, time.Second} { // the connection is given up after 5 to 6 s
			if err := store.Release(within(t, limit), grant); !errors.Is(err, driver.ErrUnreachable) {
				t.Errorf("Release in an outage: %v; want ErrUnreachable", err)
			}
		}
		if _, err := elsewhere.Acquire(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("the server has released the lock: %v", err)
		}
		p.Deliver()
		for _, store := range []driver.Store{store, elsewhere} {
			mayGet(t, store, request("x"), "the lock is free after the outage")
		}
	})
}

// TestSilentServer: while the server does not answer, calls return when their context ends, and a lock counts
// as lost after some seconds. One that has expired is not reported as held, because no server said so.
func TestSilentServer(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		kept, lost := losable("kept")
		grant, req := mustAcquire(t, store, kept), request("x")
		req.TTL = 2 * time.Second
		mustAcquire(t, store, req)
		expired := time.Now().Add(req.TTL)
		p.Hold()
		const patience = 200 * time.Millisecond
		if errs := store.Renew(within(t, patience), []driver.Grant{grant}); errs == nil || errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("Renew on a server that does not answer: %v", errs)
		}
		for time.Since(expired) < 6*time.Second { // beyond the end of the connection
			began := time.Now()
			_, err := store.Acquire(within(t, patience), request("x"))
			if began.After(expired) && (errors.Is(err, driver.ErrHeld) || !errors.Is(err, driver.ErrUnreachable)) {
				t.Fatalf("Acquire %v after the lock expired: %v; want ErrUnreachable", began.Sub(expired), err)
			}
			if took := time.Since(began); took > 4*time.Second { // less than what the connection has
				t.Errorf("Acquire with %v to go took %v", patience, took)
			}
		}
		await.Event(t, lost, "the loss is reported")
		p.Deliver()
		mayGet(t, store, request("x"), "the lock can be acquired after the outage")
	})
}

// TestUndoInOutage: while the server does not answer, a Release with the owner alone does
// not claim to know that nothing was acquired.
func TestUndoInOutage(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		mustRelease(t, store, mustAcquire(t, store, request("x"))) // now it is connected
		p.Hold()
		var reqs []driver.Request
		for _, name := range []string{"x", "x", "y"} {
			req := request(name)
			reqs = append(reqs, req)
			if _, err := store.Acquire(within(t, 500*time.Millisecond), req); err == nil || errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire of %q in an outage: %v", name, err)
			}
		}
		for range 2 { // beyond the end of the connection
			for _, req := range reqs {
				if err := store.Release(within(t, time.Second), driver.Grant{Name: req.Name, Owner: req.Owner}); !errors.Is(err, driver.ErrUnreachable) {
					t.Errorf("Release of an attempt for %q in an outage: %v; want ErrUnreachable", req.Name, err)
				}
			}
		}
		p.Deliver()
		for _, req := range reqs {
			await.Until(t, "the attempt is undone after the outage", func() bool {
				err := store.Release(within(t, 5*time.Second), driver.Grant{Name: req.Name, Owner: req.Owner})
				return err == nil || errors.Is(err, driver.ErrNotHeld)
			})
		}
	})
}

// TestConcurrentLocksInOutage: of several calls for one name none waits for a TTL.
func TestConcurrentLocksInOutage(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, p := s.behindProxy(t)
		client := dlock.New(store, nil)
		defer client.Close()
		p.Hold()
		const calls = 3
		failed := make(chan error, calls)
		for range calls {
			go func() {
				_, err := client.Lock(context.Background(), "x", dlock.WithTTL(10*await.Limit))
				failed <- err
			}()
		}
		for range calls {
			if err := await.Event(t, failed, "a Lock fails"); !errors.Is(err, driver.ErrUnreachable) {
				t.Errorf("Lock in an outage: %v; want ErrUnreachable", err)
			}
		}
		p.Deliver()
	})
}
