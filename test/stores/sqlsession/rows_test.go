package sqlsession_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// openRows opens a store of package sqllock at an address.
func (s setup) openRows(t testing.TB, ctx context.Context, addr string) (*sqllock.Store, error) {
	t.Helper()
	store, err := sqllock.New(ctx, s.openDB(t, addr), &sqllock.Options{Dialect: s.dialect})
	if err == nil {
		t.Cleanup(func() { _ = store.Close() })
	}
	return store, err
}

// rows is openRows at the address of the server.
func (s setup) rows(t testing.TB) *sqllock.Store {
	t.Helper()
	store, err := s.openRows(t, t.Context(), s.server.Addr())
	check(t, err)
	return store
}

// TestCallsOnSilentServer: calls that end by their context while the server does not answer say so.
func TestCallsOnSilentServer(t *testing.T) {
	silent := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "gave no answer") {
			t.Errorf("%s on a silent server: %v; want ErrUnreachable and DeadlineExceeded", what, err)
		}
	}
	limit := 500 * time.Millisecond
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		rows, err := s.openRows(t, t.Context(), p.Addr())
		check(t, err)
		session := s.storeAt(t, p.Addr())
		p.Hold()
		p.Hang(true)
		defer p.Reset()
		_, err = s.openRows(t, within(t, limit), p.Addr())
		silent(t, "sqllock.New", err)
		_, err = s.openAt(within(t, limit), p.Addr())
		silent(t, "sqlsession.New", err)
		for _, err := range rows.List(within(t, limit), "") {
			silent(t, "List", err)
		}
		_, err = rows.Diagnose(within(t, limit))
		silent(t, "sqllock.Diagnose", err)
		_, err = session.(driver.Diagnoser).Diagnose(within(t, limit))
		silent(t, "sqlsession.Diagnose", err)
	})
}

// TestCloseWaitsForDiagnose: Close closes the statements when no call uses them any more.
func TestCloseWaitsForDiagnose(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		store, err := s.openRows(t, t.Context(), p.Addr())
		check(t, err)
		var late *proxy.Conn
		held := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("WHERE 1 = 0")) }, func(c *proxy.Conn) {
			c.Hold()
			late = c
		})
		diagnosed := make(chan error, 1)
		go func() {
			_, err := store.Diagnose(t.Context())
			diagnosed <- err
		}()
		<-held
		closed := make(chan struct{})
		go func() {
			_ = store.Close()
			close(closed)
		}()
		select {
		case <-closed:
			t.Error("Close has returned during Diagnose")
		case <-time.After(500 * time.Millisecond):
		}
		late.Deliver()
		if err := <-diagnosed; err != nil && !errors.Is(err, driver.ErrClosed) {
			t.Errorf("Diagnose: %v", err)
		}
		<-closed
	})
}

// fair returns a request for a lock in the order of arrival.
func fair(name string) driver.Request {
	req := request(name)
	req.Fair, req.Queue = true, true
	return req
}

// TestUnfairBatchBesideQueue: a free lock is granted to requests that do not queue, although
// fair waiters queue for it.
func TestUnfairBatchBesideQueue(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		store := s.rows(t)
		mustAcquire(t, store, request("x"))
		if _, err := store.Acquire(t.Context(), fair("x")); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of a lock that is held: %v", err)
		}
		order(t, s.open(t), "DELETE FROM dlock_locks") // as if it never was
		if _, err := store.AcquireAll(t.Context(), []driver.Request{request("x"), request("y")}); err != nil {
			t.Errorf("AcquireAll of free locks beside a fair waiter: %v", err)
		}
	})
}

// TestUndoneGrantLeavesQueue: an attempt was granted the lock and could not leave the queue.
// The Release that undoes it gives up both.
func TestUndoneGrantLeavesQueue(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		store := s.rows(t)
		holder := mustAcquire(t, store, request("x"))
		first, second := fair("x"), fair("x")
		for _, req := range []driver.Request{first, second} {
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Acquire of a lock that is held: %v", err)
			}
		}
		mustRelease(t, store, holder)
		admin := s.open(t)
		drop := "DROP TRIGGER refuse"
		if s.dialect == sqlsession.Postgres {
			drop += " ON dlock_queue"
			order(t, admin, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$")
			order(t, admin, "CREATE TRIGGER refuse BEFORE DELETE ON dlock_queue FOR EACH ROW EXECUTE FUNCTION refuse()")
		} else {
			order(t, admin, "CREATE TRIGGER refuse BEFORE DELETE ON dlock_queue FOR EACH ROW SIGNAL SQLSTATE '45000'")
		}
		if _, err := store.Acquire(t.Context(), first); err == nil {
			t.Fatal("Acquire succeeded although its place could not be deleted")
		}
		order(t, admin, drop)
		if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: first.Owner}); err != nil {
			t.Errorf("Release of an attempt that was granted the lock: %v", err)
		}
		mustAcquire(t, store, second)
	})
}
