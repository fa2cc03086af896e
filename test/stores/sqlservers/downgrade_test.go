package sqlservers

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/jackc/pgx/v5/stdlib"
)

// TestDowngradedLockIsUndone: a Release with the owner alone finds a lock that was downgraded, and a
// shared lock of unknown outcome.
func TestDowngradedLockIsUndone(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		exclusive, reader := request("x"), requestIn(shared, "y")
		grant, err := store.Acquire(within(t), exclusive)
		check(t, err)
		check(t, store.Downgrade(within(t), grant))
		_, err = store.Acquire(within(t), reader)
		check(t, err)
		for _, req := range []driver.Request{exclusive, reader} {
			check(t, store.Release(within(t), driver.Grant{Name: req.Name, Owner: req.Owner}))
		}
		var left sql.NullString
		if err := admin.QueryRowContext(within(t), s.held).Scan(&left); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("%q is still held: %v", left.String, err)
		}
	})
}

// TestDowngradeComparesTheToken: the lock was broken, and its owner has taken it again. A downgrade of
// the first grant changes nothing.
func TestDowngradeComparesTheToken(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, req := s.open(t), request("x")
		first, err := store.Acquire(within(t), req)
		check(t, err)
		check(t, store.Break(within(t), "x", first.Token))
		second, err := store.Acquire(within(t), req)
		check(t, err)
		if err := store.Downgrade(within(t), first); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Downgrade of a grant that was broken: %v; want ErrNotHeld", err)
		}
		mustBeHeld(t, store, requestIn(shared, "x"))
		check(t, store.Downgrade(within(t), second))
	})
}

// TestDowngradeOfUnknownOutcome: if the server does not hear of the end of a downgrade, the next
// renewal downgrades the lock, and notifies waiters.
func TestDowngradeOfUnknownOutcome(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, network := s.behindProxy(t)
		other := s.open(t)
		warm(t, store)
		grant := acquire(t, store, "x")[0]
		notified := func() string { return "x" }
		if s.database == postgres { // waiters of MariaDB poll
			notified = s.listen(t)
		}
		abandon(t, network, isCommit, func(ctx context.Context) error { return store.Downgrade(ctx, grant) })
		mustRenew(t, store, grant)
		if name := notified(); name != "x" {
			t.Errorf("the server notifies of %q", name)
		}
		release(t, other, acquireIn(t, other, shared, "x"))
		release(t, store, grant)
		release(t, other, acquire(t, other, "x")...)
	})
}

// listen makes PostgreSQL notify of the names of locks that are freed. The function waits for the next.
func (s target) listen(t *testing.T) (next func() string) {
	t.Helper()
	conn, err := s.admin(t).Conn(within(t))
	check(t, err)
	closeAfter(t, conn)
	_, err = conn.ExecContext(within(t), "LISTEN dlock_wake")
	check(t, err)
	return func() (name string) {
		t.Helper()
		check(t, conn.Raw(func(raw any) error {
			notification, err := raw.(*stdlib.Conn).Conn().WaitForNotification(within(t))
			if err == nil {
				name = notification.Payload
			}
			return err
		}))
		return name
	}
}

// TestRenewalBesideADowngrade: a renewal that was sent before a downgrade, and arrives after it, renews
// the lock all the same.
func TestRenewalBesideADowngrade(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, network := s.behindProxy(t)
		warm(t, store)
		grants := acquire(t, store, "x")
		kept := keep(network, carriesOwner(grants[0].Owner), func() {})
		renewed := make(chan []error, 1)
		go func() { renewed <- store.Renew(within(t), grants) }()
		late := kept(t)
		check(t, store.Downgrade(within(t), grants[0]))
		late.Deliver()
		if errs := <-renewed; errs != nil {
			t.Errorf("Renew beside a downgrade: %v", errs)
		}
		release(t, store, grants...)
	})
}

// TestDowngradeEndsWithItsLock: an owner that has lost a lock which it had downgraded, and has
// acquired it again, has an exclusive lock.
func TestDowngradeEndsWithItsLock(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, other := s.open(t), s.open(t)
		req := request("x")
		grant, err := store.Acquire(within(t), req)
		check(t, err)
		check(t, store.Downgrade(within(t), grant))
		check(t, other.Break(within(t), "x", grant.Token))
		if err := errors.Join(store.Renew(within(t), []driver.Grant{grant})...); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("Renew of a lock that was broken: %v; want ErrNotHeld", err)
		}
		grant, err = store.Acquire(within(t), req)
		check(t, err)
		mustRenew(t, store, grant)
		mustBeHeld(t, other, requestIn(shared, "x"))
		release(t, store, grant)
	})
}

// mustHaveNoPlace fails if the queue has a place.
func (s target) mustHaveNoPlace(t *testing.T, admin *sql.DB) {
	t.Helper()
	names, err := column[string](within(t), admin, s.queued)
	check(t, err)
	if len(names) > 0 {
		t.Errorf("the queues of %q have places", names)
	}
}

// TestPlaceOfUnknownOutcome: an exclusive waiter does not hear that it has a place. When it is granted
// the lock, the place is gone, and keeps no shared holder out after a downgrade.
func TestPlaceOfUnknownOutcome(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, network := s.behindProxy(t)
		other, admin := s.open(t), s.admin(t)
		warm(t, store)
		reader := acquireIn(t, other, shared, "x")
		writer := request("x")
		writer.Queue = true
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		takesPlace := func(request []byte) bool {
			return bytes.Contains(request, []byte(writer.Owner.Hex())) && bytes.Contains(request, []byte("exclusive")) && !bytes.Contains(request, []byte("SELECT"))
		}
		network.OnRequest(takesPlace, func(c *proxy.Conn) {
			lost := c.LoseReplies()
			go func() {
				<-lost
				leave()
			}()
		})
		if _, err := store.Acquire(ctx, writer); !errors.Is(err, context.Canceled) {
			t.Fatalf("an attempt whose place is not answered: %v; want Canceled", err)
		}
		if n := number(t, admin, "SELECT count(*) FROM dlock_queue WHERE owner = '"+writer.Owner.Hex()+"'"); n != 1 {
			t.Fatalf("the waiter has %d places", n)
		}
		release(t, other, reader)
		grant, err := store.Acquire(within(t), writer)
		check(t, err)
		s.mustHaveNoPlace(t, admin)
		check(t, store.Downgrade(within(t), grant))
		release(t, other, acquireIn(t, other, shared, "x"))
		release(t, store, grant)
	})
}

// TestReleaseOfADowngradedLockLeavesNoPlace: a place that its owner took without knowing ends with a lock that was
// downgraded, so that new shared holders are admitted.
func TestReleaseOfADowngradedLockLeavesNoPlace(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store, admin := s.open(t), s.admin(t)
		grant := acquire(t, store, "x")[0]
		check(t, store.Downgrade(within(t), grant))
		run(t, admin, "INSERT INTO dlock_queue (name, owner, mode, fair, expires) SELECT 'x', '"+grant.Owner.Hex()+"', 'exclusive', false, expires FROM dlock_locks WHERE name = 'x'")
		release(t, store, grant)
		s.mustHaveNoPlace(t, admin)
	})
}
