package sqlservers

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

const (
	lateDelivery = 1200 * time.Millisecond // how late a request arrives
	lateInside   = 300 * time.Millisecond  // the same inside a transaction, which the server ends after two seconds
)

// lateRequest returns a request whose statements carriesHolder finds.
func lateRequest() driver.Request {
	req := request("x")
	req.Holder.Note = "late"
	return req
}

// TestLateAttempts shows for each call that can grant a lock or a place in the queue: if
// the caller's context ends while the request is on its way, and the request arrives
// after the caller's Release, no lock and no place are left behind.
func TestLateAttempts(t *testing.T) {
	acquireFair := func(ctx context.Context, store *sqllock.Store, req driver.Request) error {
		req.Fair, req.Queue = true, true
		_, err := store.Acquire(ctx, req)
		return err
	}
	attempts := []struct {
		name    string
		matches func(req driver.Request) func([]byte) bool // finds the request that arrives late
		held    bool                                       // the lock is held when the attempt is made
		attempt func(ctx context.Context, store *sqllock.Store, req driver.Request) error
	}{
		{"acquire", carriesHolder, false, func(ctx context.Context, store *sqllock.Store, req driver.Request) error {
			_, err := store.Acquire(ctx, req)
			return err
		}},
		{"fair", carriesHolder, false, acquireFair},
		{"place", takesPlace, true, acquireFair},
		{"shared", func(driver.Request) func([]byte) bool { return isCommit }, false, func(ctx context.Context, store *sqllock.Store, req driver.Request) error {
			req.Mode = shared
			_, err := store.Acquire(ctx, req)
			return err
		}},
		{"all", func(driver.Request) func([]byte) bool { return isCommit }, false, func(ctx context.Context, store *sqllock.Store, req driver.Request) error {
			_, err := store.AcquireAll(ctx, []driver.Request{req, request("other")})
			return err
		}},
	}
	eachScheme(t, func(t *testing.T, s target) {
		for _, c := range attempts {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := s.target(t, "scheme="+s.scheme())
				store, network := s.openLate(t)
				other := s.open(t)
				warm(t, store)
				req := lateRequest()
				var held driver.Grant
				if c.held {
					held = hold(t, store)
				}
				late := abandon(t, network, c.matches(req), func(ctx context.Context) error {
					return c.attempt(ctx, store, req)
				})
				delivery := time.AfterFunc(lateDelivery, late.Deliver)
				defer delivery.Stop()
				undo(t, store, req)
				if c.name == "place" {
					release(t, store, held)
				}
				settle(t, network)
				freeSoon(t, other)
			})
		}
	})
}

// openLate is behindProxy for a store whose Close has attempts to undo once more. It has a second for
// that, in which a machine that stalls may not answer. By then the test has shown that the name is free.
func (s target) openLate(t *testing.T) (*sqllock.Store, *proxy.Proxy) {
	t.Helper()
	network := proxy.Run(t, s.parsed().Host)
	store, err := s.at(network.Addr()).store(t.Context())
	check(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil && !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("close: %v", err)
		}
	})
	return store.(owning).Store, network
}

// settle waits until the server has answered everything.
func settle(t *testing.T, network *proxy.Proxy) {
	t.Helper()
	if !network.Settle(limit) {
		t.Fatal("the server did not answer the late request")
	}
}

// keep holds the connection of the next request that matches, and then calls leave; kept
// waits for that.
func keep(network *proxy.Proxy, matches func([]byte) bool, leave func()) (kept func(t *testing.T) *proxy.Conn) {
	var held *proxy.Conn
	happened := network.OnRequest(matches, func(c *proxy.Conn) {
		held = c
		c.Hold()
		leave()
	})
	return func(t *testing.T) *proxy.Conn {
		t.Helper()
		await.Event(t, happened, "the request to be held")
		return held
	}
}

// abandon makes a call whose caller leaves as soon as a request that matches is on its way, and returns the
// connection that the request is kept on.
func abandon(t *testing.T, network *proxy.Proxy, matches func([]byte) bool, call func(context.Context) error) *proxy.Conn {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	kept := keep(network, matches, leave)
	if err := call(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a call whose request does not arrive: %v; want Canceled", err)
	}
	return kept(t)
}

// carriesHolder finds the statement that takes a lock: no other describes the holder.
func carriesHolder(req driver.Request) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(`"`+req.Holder.Note+`"`)) }
}

// carriesOwner finds any statement with that owner.
func carriesOwner(owner driver.Owner) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(owner.Hex())) }
}

// takesPlace finds the statement that takes a place in the queue of a lock that is held:
// the first with that owner asks for the holder.
func takesPlace(req driver.Request) func([]byte) bool {
	seen := 0
	return func(request []byte) bool {
		if carriesOwner(req.Owner)(request) {
			seen++
		}
		return seen == 2
	}
}

// hold acquires x, and lets the store know that x is held.
func hold(t *testing.T, store *sqllock.Store) driver.Grant {
	t.Helper()
	grants := acquire(t, store, "x")
	waiter := fairRequest("x")
	mustBeHeld(t, store, waiter)
	undo(t, store, waiter)
	return grants[0]
}

// warm makes the store open its connections and prepare its statements.
func warm(t *testing.T, store *sqllock.Store) {
	t.Helper()
	release(t, store, hold(t, store))
}

// freeSoon demands that another client gets the lock long before its TTL is over. The
// client asks in the order of arrival, so that a place in the queue is in its way too.
func freeSoon(t *testing.T, other driver.Store) {
	t.Helper()
	req := request("x")
	req.Fair = true
	start := time.Now()
	for {
		grant, err := other.Acquire(within(t), req)
		if err == nil {
			release(t, other, grant)
			return
		}
		if took := time.Since(start); !errors.Is(err, driver.ErrHeld) || took > limit {
			t.Fatalf("the lock is not free %v after the late request was carried out: %v", took, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestAttemptThatWaitsAtTheServer: an attempt that has arrived and waits for a row that
// another transaction keeps locked leaves nothing either. Where the driver asks the server to
// cancel it, that request gets lost.
func TestAttemptThatWaitsAtTheServer(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		network := proxy.Run(t, s.parsed().Host)
		db, opts, err := s.at(network.Addr()).newPool()
		check(t, err)
		defer db.Close()
		store, err := sqllock.New(t.Context(), db, opts)
		check(t, err)
		defer store.Close()
		other, admin := s.open(t), s.admin(t)
		unlock := lockFreeLocks(t, admin, store, "x")
		defer unlock()
		var conns [2]*sql.Conn // one for the attempt, one for the release
		for i := range conns {
			conns[i], err = db.Conn(within(t))
			check(t, err)
		}
		for _, conn := range conns {
			check(t, conn.Close())
		}
		network.Hang(true)
		req := request("x")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := store.Acquire(ctx, req)
			ended <- err
		}()
		s.waitBlocked(t, admin, 1)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("an attempt that was cancelled: %v; want Canceled", err)
		}
		// MariaDB makes the release wait for the row, too.
		defer time.AfterFunc(time.Second, unlock).Stop()
		undo(t, store, req)
		unlock()
		network.Hang(false)
		s.waitBlocked(t, admin, 0)
		freeSoon(t, other)
	})
}

// TestSlowReleaseAfterALostAttempt: a lock that was granted at the second attempt, because the
// answer to the first was lost, is not reported as lost by a Release that takes its time.
func TestSlowReleaseAfterALostAttempt(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, network := s.behindProxy(t)
		other := s.open(t)
		warm(t, store)
		req := lateRequest()
		var grant driver.Grant
		acquire := func(ctx context.Context) (err error) {
			grant, err = store.Acquire(ctx, req)
			return err
		}
		first := abandon(t, network, carriesHolder(req), acquire)
		check(t, acquire(within(t)))
		kept := keep(network, carriesOwner(req.Owner), func() {})
		released := make(chan error, 1)
		go func() { released <- store.Release(within(t), grant) }()
		time.AfterFunc(lateInside, kept(t).Deliver) // time enough for what is undone in the background
		if err := <-released; err != nil {
			t.Errorf("Release: %v", err)
		}
		first.Deliver()
		settle(t, network)
		freeSoon(t, other)
	})
}

// TestFairHolderAsksAgain: a fair waiter that lost the answer to its grant asks again. It gets the same
// token, although another waiter of its process was refused meanwhile and heads the queue.
func TestFairHolderAsksAgain(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store := s.open(t)
		req, next := fairRequest("x"), fairRequest("x")
		grant, err := store.Acquire(within(t), req)
		check(t, err)
		mustBeHeld(t, store, next)
		if again, err := store.Acquire(within(t), req); err != nil || again.Token != grant.Token {
			t.Errorf("the holder asks again: %+v, %v; want token %d", again, err, grant.Token)
		}
		undo(t, store, next)
	})
}
