package dlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// passed returns a client that has a claim of x on its way from a caller that has given up to the next one, which
// has not run yet.
func passed(t *testing.T, store *memlock.Store) (c *Client, next *ticket) {
	c = New(store, nil)
	time.Sleep(time.Second) // the clock of a client begins at zero
	b := bidFor(t, c, "x", c.settings(nil))
	b.occupy()
	if err := b.attempt(); !errors.Is(err, ErrHeld) || b.beforeRetry(err) != nil {
		t.Fatal(err)
	}
	next = c.queue.Wait("x", b.occupant(0), func(w *waiter) { w.settings, w.accepts = c.settings(nil), true })
	var cancel context.CancelFunc
	b.call.ctx, cancel = context.WithCancel(b.call.ctx)
	cancel()
	if !b.pass() {
		t.Fatal("the claim was not passed on")
	}
	return c, next
}

// A caller whose wait ends at the moment when a claim is passed on learns of the holder.
func TestHolderIsKnownWhileAClaimIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		other := New(store, nil)
		defer other.Close()
		holder := lockX(t, other, t.Context())
		c, next := passed(t, store)
		if held := c.lastHolder("x", c.settings(nil).mode); held == nil {
			t.Error("no holder is known")
		}
		heir := bidFor(t, c, "x", c.settings(nil))
		heir.slot = next.Slot()
		heir.inherit()
		heir.abandon()
		heir.claim.unsubscribe()
		_, _ = holder.Unlock(t.Context()), c.Close()
	})
}

// subscriptions is a store that counts its subscriptions.
type subscriptions struct {
	*memlock.Store
	n int
}

func (s *subscriptions) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	stop, err := s.Store.Watch(ctx, req, wake)
	s.n++
	return func() { s.n--; stop() }, err
}

// A waiter whose grant ended before the waiter had it asks by a new owner. It keeps no subscription of the old one,
// which would be lost if the waiter queued again and another claim were passed on to it.
func TestGrantThatEndedEarlyLeavesNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &subscriptions{Store: memlock.New()}
		c, other := New(store, nil), New(store.Store, nil)
		defer c.Close()
		defer other.Close()
		holder := lockX(t, other, t.Context())
		time.AfterFunc(time.Second, func() { _ = holder.Unlock(t.Context()) })
		b := bidFor(t, c, "x", c.settings(nil))
		b.occupy()
		if err := b.attemptUntilGranted(); err != nil {
			t.Fatal(err)
		}
		b.tenure.grant.lose(errRevoked)
		if err := b.deliver(); err != errEndedEarly { //nolint:errorlint
			t.Fatal(err)
		}
		if store.n != 0 {
			t.Errorf("%d subscriptions", store.n)
		}
	})
}
