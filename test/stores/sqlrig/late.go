package sqlrig

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// lateTTL is what an abandoned statement asks for. It is over when the server carries
// the statement out.
const lateTTL = 200 * time.Millisecond

// late is a store whose connections the server serves, but never hears of again once
// cut is called, and an administrator who keeps a row locked.
type late struct {
	d       *Database
	network *proxy.Proxy
	store   *sqllock.Store // behind the network
	direct  *sqllock.Store
	admin   *sql.DB
}

func (d *Database) late(t *testing.T, raw string) *late {
	t.Helper()
	network := proxy.Run(t, d.server.Addr())
	l := &late{d: d, network: network, direct: d.Opened(t, raw), admin: d.DB(t, raw)}
	l.store = d.Opened(t, At(raw, network.Addr()))
	t.Cleanup(func() { // before the store is closed
		network.Reset()
		network.Deliver()
	})
	return l
}

// blocked counts the statements that wait for a row.
func (l *late) blocked(t *testing.T) (n int) {
	t.Helper()
	if err := l.admin.QueryRowContext(t.Context(), l.d.Blocked).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lock locks the row of a name, as an administrator might, until unlock is called.
func (l *late) lock(t *testing.T, table, name string) (unlock func()) {
	t.Helper()
	tx, err := l.admin.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var locked []byte
	if err := tx.QueryRowContext(t.Context(), "SELECT name FROM "+table+" WHERE name = '"+name+"' FOR UPDATE").Scan(&locked); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// abandon makes a call over the network that waits for a locked row, and gives it up: the
// caller leaves, the server goes on. It returns when lateTTL has passed since the
// statement began.
func (l *late) abandon(t *testing.T, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	Eventually(t, "a statement waits for the row", func() bool { return l.blocked(t) == 1 })
	began := time.Now()
	l.network.Hold() // so that nothing that cancels the statement arrives
	cancel()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("a call that waited for a locked row until its context ended: %v", err)
		}
	case <-time.After(limit):
		t.Fatal("a call did not return when its context ended")
	}
	Eventually(t, "what the statement asked for is in the past", func() bool { return time.Since(began) > lateTTL })
}

// carriedOut waits until the server has carried out what was abandoned.
func (l *late) carriedOut(t *testing.T) {
	t.Helper()
	Eventually(t, "the server carries out the statement", func() bool { return l.blocked(t) == 0 })
}

// LateRenewal shows that a renewal which the server carries out long after the holder
// has given it up does not shorten what the holder has renewed since: a renewal of two
// locks waits for the row of the first, and then writes that of the second.
func (d *Database) LateRenewal(t *testing.T, raw string) {
	t.Helper()
	l := d.late(t, raw)
	var grants []driver.Grant
	for _, name := range []string{"a", "b"} {
		grant, err := l.direct.Acquire(Within(t), Request(name))
		if err != nil {
			t.Fatal(err)
		}
		grant.TTL = lateTTL
		grants = append(grants, grant)
	}
	unlock := l.lock(t, "dlock_locks", "a")
	l.abandon(t, func(ctx context.Context) error { return errors.Join(l.store.Renew(ctx, grants)...) })
	held := grants[1]
	held.TTL = Request("b").TTL
	if errs := l.direct.Renew(Within(t), []driver.Grant{held}); errs != nil {
		t.Fatalf("Renew of a lock whose row is not locked: %v", errs[0])
	}
	unlock()
	l.carriedOut(t)
	l.lasts(t, held)
}

// lasts demands that a grant is held for most of its TTL yet.
func (l *late) lasts(t *testing.T, grant driver.Grant) {
	t.Helper()
	if _, err := l.direct.Acquire(Within(t), Request(grant.Name)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of %q by a second owner: want ErrHeld, got: %v", grant.Name, err)
	}
	for info, err := range l.direct.List(Within(t), grant.Name) {
		if err != nil {
			t.Fatal(err)
		}
		if info.Token != grant.Token || info.Remaining < grant.TTL/2 {
			t.Errorf("%q is held with token %d for %v more; want token %d and most of %v", info.Name, info.Token, info.Remaining, grant.Token, grant.TTL)
		}
		return
	}
	t.Errorf("%q is not held any more", grant.Name)
}

// AbandonedRenewal shows that the server ends a renewal whose caller has left, although
// the row stays locked.
func (d *Database) AbandonedRenewal(t *testing.T, raw string) {
	t.Helper()
	l := d.late(t, raw)
	grant, err := l.direct.Acquire(Within(t), Request("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.lock(t, "dlock_locks", "a")()
	l.abandon(t, func(ctx context.Context) error { return errors.Join(l.store.Renew(ctx, []driver.Grant{grant})...) })
	l.carriedOut(t)
}

// LatePlace shows that a place in the queue is kept for as long as its owner asked,
// although a request of the owner for less is carried out later.
func (d *Database) LatePlace(t *testing.T, raw string) {
	t.Helper()
	first, second, admin := d.Opened(t, raw), d.Opened(t, raw), d.DB(t, raw)
	if _, err := first.Acquire(Within(t), Request("x")); err != nil {
		t.Fatal(err)
	}
	waiter := Request("x")
	waiter.Fair, waiter.Queue = true, true
	for _, store := range []*sqllock.Store{first, second} { // the first knows that it has a place
		if _, err := store.Acquire(Within(t), waiter); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
		}
		waiter.TTL = lateTTL
	}
	end := time.Now().Add(2 * lateTTL)
	Eventually(t, "the shorter time is over", func() bool { return time.Now().After(end) })
	var name string
	if err := admin.QueryRowContext(t.Context(), d.Queued).Scan(&name); err != nil {
		t.Errorf("the place in the queue: %v; want that of %q", err, waiter.Name)
	}
}
