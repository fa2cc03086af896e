package sqlrig

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

const (
	lateDelivery = 1200 * time.Millisecond // how late a request arrives
	lateInside   = 300 * time.Millisecond  // the same inside a transaction, which the server ends after two seconds
	// lateLimit is how soon another client gets the lock after that. It is far below the
	// TTL of the requests, and far above what a busy machine needs.
	lateLimit = 12 * time.Second
)

// LateAttempts shows for each call that can grant a lock or a place in the queue: if
// the caller's context ends while the request is on its way, and the request arrives
// after the caller's Release, no lock and no place are left behind.
func (d *Database) LateAttempts(t *testing.T, parameters string) {
	t.Helper()
	for _, c := range []struct {
		name    string
		matches func(req driver.Request) func([]byte) bool // finds the request that arrives late
		prepare func(t *testing.T, store *sqllock.Store, req driver.Request) driver.Grant
		attempt func(ctx context.Context, store *sqllock.Store, req driver.Request, prepared driver.Grant) error
	}{
		{
			name: "acquire", matches: carriesHolder,
			attempt: func(ctx context.Context, store *sqllock.Store, req driver.Request, _ driver.Grant) error {
				_, err := store.Acquire(ctx, req)
				return err
			},
		},
		{
			name: "fair", matches: carriesHolder,
			attempt: func(ctx context.Context, store *sqllock.Store, req driver.Request, _ driver.Grant) error {
				req.Fair, req.Queue = true, true
				_, err := store.Acquire(ctx, req)
				return err
			},
		},
		{
			name: "place", matches: takesPlace, prepare: holds,
			attempt: func(ctx context.Context, store *sqllock.Store, req driver.Request, _ driver.Grant) error {
				req.Fair, req.Queue = true, true
				_, err := store.Acquire(ctx, req)
				return err
			},
		},
		{
			name: "all", matches: func(driver.Request) func([]byte) bool { return isCommit },
			attempt: func(ctx context.Context, store *sqllock.Store, req driver.Request, _ driver.Grant) error {
				_, err := store.AcquireAll(ctx, []driver.Request{req, Request("other")})
				return err
			},
		},
		{
			name: "pass", matches: carriesHolder, prepare: holds,
			attempt: func(ctx context.Context, store *sqllock.Store, req driver.Request, held driver.Grant) error {
				_, err := store.Pass(ctx, held, req)
				return err
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			raw := d.URL(t, parameters)
			network := proxy.Run(t, d.server.Addr())
			store, other := d.Opened(t, At(raw, network.Addr())), d.Opened(t, raw)
			warm(t, store)
			req := Request("x")
			req.Holder.Note = "late"
			var held driver.Grant
			if c.prepare != nil {
				held = c.prepare(t, store, req)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			kept := keep(network, c.matches(req), leave)
			if err := c.attempt(ctx, store, req, held); !errors.Is(err, context.Canceled) {
				t.Fatalf("an attempt whose request does not arrive: %v; want Canceled", err)
			}
			late := kept(t)
			delivery := time.AfterFunc(lateDelivery, late.Deliver)
			defer delivery.Stop()
			giveBack(t, store, driver.Grant{Name: req.Name, Owner: req.Owner})
			if c.name == "place" {
				giveBack(t, store, held)
			}
			if !network.Settle(limit) {
				t.Fatal("the server did not answer the late request")
			}
			freeSoon(t, other, "x")
		})
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
		select {
		case <-happened:
		case <-time.After(limit):
			t.Fatal("the request was not sent")
		}
		return held
	}
}

// carriesHolder finds the statement that takes a lock: no other says who the holder is.
func carriesHolder(req driver.Request) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(`"`+req.Holder.Note+`"`)) }
}

// takesPlace finds the statement that takes a place in the queue of a lock that is held:
// the first with that owner asks for the holder.
func takesPlace(req driver.Request) func([]byte) bool {
	seen := 0
	return func(request []byte) bool {
		if bytes.Contains(request, []byte(req.Owner.Hex())) {
			seen++
		}
		return seen == 2
	}
}

// holds is a lock that is held when the attempt is made, and the store knows that.
func holds(t *testing.T, store *sqllock.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(Within(t), Request(req.Name))
	if err != nil {
		t.Fatal(err)
	}
	waiter := Request(req.Name)
	waiter.Fair, waiter.Queue = true, true
	if _, err := store.Acquire(Within(t), waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
	}
	giveBack(t, store, driver.Grant{Name: req.Name, Owner: waiter.Owner})
	return grant
}

// warm makes the store open its connections and prepare its statements.
func warm(t *testing.T, store *sqllock.Store) {
	t.Helper()
	giveBack(t, store, holds(t, store, Request("x")))
}

// giveBack releases a lock, or what an attempt may have left.
func giveBack(t *testing.T, store driver.Store, grant driver.Grant) {
	t.Helper()
	err := store.Release(Within(t), grant)
	if err != nil && (grant.Token != 0 || !errors.Is(err, driver.ErrNotHeld)) {
		t.Fatalf("Release: %v", err)
	}
}

// freeSoon demands that another client gets the lock long before its TTL is over. The
// client asks in the order of arrival, so that a place in the queue is in its way too.
func freeSoon(t *testing.T, other driver.Store, name string) {
	t.Helper()
	req := Request(name)
	req.Fair = true
	start := time.Now()
	for {
		grant, err := other.Acquire(Within(t), req)
		took := time.Since(start)
		switch {
		case err == nil:
			giveBack(t, other, grant)
			t.Logf("the lock was free %v after the late request was carried out", took)
			return
		case !errors.Is(err, driver.ErrHeld):
			t.Fatal(err)
		case took > lateLimit:
			t.Fatalf("the lock is not free %v after the late request was carried out: %v", took, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// AttemptThatWaitsAtTheServer shows the same for an attempt that has arrived and waits for
// a row that another transaction keeps locked. Where the driver asks the server to cancel it, that
// request gets lost.
func (d *Database) AttemptThatWaitsAtTheServer(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, d.server.Addr())
	db, opts, err := d.Pool(At(raw, network.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store, err := sqllock.New(t.Context(), db, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	other, admin := d.Opened(t, raw), d.DB(t, raw)
	unlock := sync.OnceFunc(d.lockRows(t, raw, store, "x"))
	defer unlock()
	var conns [2]*sql.Conn // one for the attempt, one for the release
	for i := range conns {
		if conns[i], err = db.Conn(Within(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	network.Hang(true)
	req := Request("x")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := store.Acquire(ctx, req)
		ended <- err
	}()
	Eventually(t, "the attempt waits for the row", func() bool {
		var n int
		if err := admin.QueryRowContext(t.Context(), d.Blocked).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("an attempt that was cancelled: %v; want Canceled", err)
	}
	// MariaDB makes the release wait for the row, too.
	defer time.AfterFunc(time.Second, unlock).Stop()
	giveBack(t, store, driver.Grant{Name: "x", Owner: req.Owner})
	unlock()
	network.Hang(false)
	Eventually(t, "the attempt has been carried out", func() bool {
		var n int
		if err := admin.QueryRowContext(t.Context(), d.Blocked).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	freeSoon(t, other, "x")
}

// secondAttempt is a lock that was granted at the second attempt of its owner, while
// the request of the first is still on its way.
type secondAttempt struct {
	network      *proxy.Proxy
	store, other *sqllock.Store // behind the network, and beside it
	grant        driver.Grant
	first        *proxy.Conn
}

func (d *Database) secondAttempt(t *testing.T, raw string) *secondAttempt {
	t.Helper()
	network := proxy.Run(t, d.server.Addr())
	s := &secondAttempt{network: network, store: d.Opened(t, At(raw, network.Addr())), other: d.Opened(t, raw)}
	warm(t, s.store)
	req := Request("x")
	req.Holder.Note = "late"
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	kept := keep(network, carriesHolder(req), leave)
	if _, err := s.store.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Fatalf("an attempt whose request does not arrive: %v; want Canceled", err)
	}
	s.first = kept(t)
	var err error
	if s.grant, err = s.store.Acquire(Within(t), req); err != nil {
		t.Fatalf("the second attempt: %v", err)
	}
	return s
}

// deliver lets the first attempt arrive, which must leave no lock behind.
func (s *secondAttempt) deliver(t *testing.T) {
	t.Helper()
	s.first.Deliver()
	if !s.network.Settle(limit) {
		t.Fatal("the server did not answer the late request")
	}
	freeSoon(t, s.other, "x")
}

// LateAttemptAfterPass shows the same for an owner that asked again, was granted the
// lock and passed it on: its first attempt, which arrives when the lock is free again,
// leaves no lock behind.
func (d *Database) LateAttemptAfterPass(t *testing.T, raw string) {
	t.Helper()
	s := d.secondAttempt(t, raw)
	next, err := s.store.Pass(Within(t), s.grant, Request("x"))
	if err != nil {
		t.Fatal(err)
	}
	giveBack(t, s.store, next)
	s.deliver(t)
}

// LateBatch shows the same for an attempt that shares a transaction with others, which
// goes on when its caller leaves.
func (d *Database) LateBatch(t *testing.T, raw string) {
	t.Helper()
	network := proxy.Run(t, d.server.Addr())
	store, other := d.Opened(t, At(raw, network.Addr())), d.Opened(t, raw)
	warm(t, store)
	// Whether attempts share a transaction is up to the moment at which they come.
	const rounds = 5
	for range rounds {
		if d.lateBatch(t, network, store, other) {
			return
		}
	}
	t.Errorf("two attempts did not share a transaction in %d rounds", rounds)
}

// lateBatch reports whether the attempts shared a transaction.
func (d *Database) lateBatch(t *testing.T, network *proxy.Proxy, store, other driver.Store) (together bool) {
	t.Helper()
	var work sync.WaitGroup
	acquire := func(ctx context.Context, req driver.Request) <-chan error {
		ended := make(chan error, 1)
		work.Go(func() {
			_, err := store.Acquire(ctx, req)
			ended <- err
		})
		return ended
	}
	// Nothing but the attempts for x and y may share a transaction: the rest is released
	// when they are over.
	var rest []driver.Grant
	defer func() {
		work.Wait()
		for _, grant := range rest {
			giveBack(t, store, grant)
		}
	}()
	var writers []*proxy.Conn // all that write at once
	for _, name := range []string{"v", "w"} {
		req := Request(name)
		rest = append(rest, driver.Grant{Name: name, Owner: req.Owner})
		kept := keep(network, carriesHolder(req), func() {})
		acquire(Within(t), req)
		writers = append(writers, kept(t))
	}
	deliver := sync.OnceFunc(func() {
		for _, w := range writers {
			w.Deliver()
		}
	})
	defer deliver()
	req := Request("x")
	req.Holder.Note = "late"
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var late *proxy.Conn
	network.OnRequest(carriesHolder(req), func(c *proxy.Conn) {
		late = c
		c.Hold()
		leave()
		time.AfterFunc(lateInside, c.Deliver)
	})
	committed := network.OnRequest(isCommit, nil)
	neighbour := Request("y")
	rest = append(rest, driver.Grant{Name: "y", Owner: neighbour.Owner})
	left, stayed := acquire(ctx, req), acquire(Within(t), neighbour)
	<-time.After(lateInside) // for both to queue behind the writers
	deliver()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("an attempt that was cancelled: %v; want Canceled", err)
	}
	giveBack(t, store, driver.Grant{Name: "x", Owner: req.Owner})
	if err := <-stayed; err != nil {
		t.Errorf("the attempt whose caller stayed: %v", err)
	}
	late.Deliver()
	if !network.Settle(limit) {
		t.Fatal("the server did not answer the late request")
	}
	freeSoon(t, other, "x")
	select {
	case <-committed:
		return true
	default:
		return false
	}
}

// SlowReleaseAfterALostAttempt shows that a lock that was granted at the second attempt,
// because the answer to the first was lost, is not reported as lost by a Release that
// takes its time.
func (d *Database) SlowReleaseAfterALostAttempt(t *testing.T, raw string) {
	t.Helper()
	s := d.secondAttempt(t, raw)
	owner := []byte(s.grant.Owner.Hex())
	kept := keep(s.network, func(request []byte) bool { return bytes.Contains(request, owner) }, func() {})
	released := make(chan error, 1)
	go func() { released <- s.store.Release(Within(t), s.grant) }()
	second := kept(t)
	time.AfterFunc(lateInside, second.Deliver) // time enough for what is undone in the background
	if err := <-released; err != nil {
		t.Errorf("Release: %v", err)
	}
	s.deliver(t)
}
