package sqlsession_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// queuedRequest returns an exclusive request that waits among shared holders.
func queuedRequest(name string) driver.Request {
	req := request(name)
	req.Queue = true
	return req
}

// TestPlaceOverSilentConnection: a connection that has nothing but a place is probed as often as one
// with locks. If it died without a sign, the store ends its session, and with it the place.
func TestPlaceOverSilentConnection(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	store, p := s.behindProxy(t)
	elsewhere := s.store(t, s.open(t))
	reader := mustAcquire(t, elsewhere, sharedRequest("x"))
	mustBeHeld(t, store, queuedRequest("x"))
	mustBeHeld(t, elsewhere, sharedRequest("x"))
	var requests atomic.Int64
	p.OnRequest(func([]byte) bool {
		requests.Add(1)
		return false
	}, func(*proxy.Conn) {})
	// A connection without locks and places has one probe in half a minute.
	await.Until(t, "the connection of a place is probed", func() bool { return requests.Load() >= 4 })
	p.Blackhole()
	mayGet(t, elsewhere, sharedRequest("x"), "the place of a silent connection is gone")
	mustRelease(t, elsewhere, reader)
}

// TestLateAnswerAboutAPlace: a connection is lost while it is asked for a place, and the place is
// taken on another one. When the first statement ends, the store still knows of the place, and
// gives it up with its waiter.
func TestLateAnswerAboutAPlace(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	p := proxy.Run(t, s.server.Addr())
	db := s.openDB(t, p.Addr())
	store, elsewhere := s.store(t, db), s.store(t, s.open(t))
	reader := mustAcquire(t, elsewhere, sharedRequest("x"))
	writer := queuedRequest("x")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var late *proxy.Conn
	asked := 0 // first for the lock, then for the place
	p.OnRequest(func(request []byte) bool {
		if s.attempts(request) {
			asked++
		}
		return asked == 2
	}, func(c *proxy.Conn) {
		late = c
		c.Hold()
		leave()
	})
	if _, err := store.Acquire(ctx, writer); !errors.Is(err, context.Canceled) {
		t.Fatalf("an attempt whose place is not answered: %v; want Canceled", err)
	}
	await.Until(t, "the place is taken on another connection", func() bool {
		_, err := store.Acquire(within(t, time.Second), writer)
		return errors.Is(err, driver.ErrHeld)
	})
	mustBeHeld(t, elsewhere, sharedRequest("x"))
	late.Reset()
	await.Until(t, "the first connection has ended", func() bool { return db.Stats().InUse == 1 })
	if err := store.Release(t.Context(), driver.Grant{Name: "x", Owner: writer.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of a waiter: %v; want ErrNotHeld", err)
	}
	mustRelease(t, elsewhere, mustAcquire(t, elsewhere, sharedRequest("x"))) // no place is left
	mustRelease(t, elsewhere, reader)
}

// TestFailedSharedAttempt: a statement for a shared lock that fails costs the store no other lock, and
// leaves nothing behind. Only if the connection has another share of the name, the store cannot
// tell them apart, and ends the connection.
func TestFailedSharedAttempt(t *testing.T) {
	t.Parallel()
	s := onPostgres(t, sqlsession.Session)
	store, elsewhere, admin := s.store(t, s.open(t)), s.store(t, s.open(t)), s.open(t)
	var lost atomic.Int64
	req := sharedRequest("kept")
	req.Lost = func() { lost.Add(1) }
	kept := mustAcquire(t, store, req)
	// The lock is taken before the token is drawn, which fails.
	order(t, admin, `DO $$ BEGIN EXECUTE 'ALTER SEQUENCE dlock_fence MAXVALUE ' || (SELECT last_value FROM dlock_fence); END $$`)
	mustFail := func(name string) {
		t.Helper()
		if _, err := store.Acquire(t.Context(), sharedRequest(name)); err == nil || errors.Is(err, driver.ErrHeld) {
			t.Errorf("a shared lock without a token: %v", err)
		}
	}
	mustFail("x")
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil || lost.Load() > 0 {
		t.Fatalf("another lock, after a shared one failed: %v, reported as lost %d times", errs, lost.Load())
	}
	mustFail("kept")
	await.Until(t, "the loss of the other share is reported", func() bool { return lost.Load() == 1 })
	order(t, admin, `ALTER SEQUENCE dlock_fence NO MAXVALUE`)
	for _, name := range []string{"x", "kept"} {
		mayGet(t, elsewhere, request(name), name+" is free")
	}
}
