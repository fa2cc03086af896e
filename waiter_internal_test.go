package dlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// remote is a store whose calls are bounded in time, as those of a server are.
type remote struct{ *memlock.Store }

func (r remote) Traits() driver.Traits {
	traits := r.Store.Traits()
	traits.Local = false
	return traits
}

// If the lock that was handed over to a waiter cannot be used, the waiter has a RequestTimeout to
// ask the store, however long it has waited in the process.
func TestWaiterWithAHandedOverLockHasTimeToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(remote{memlock.New()}, nil)
		defer c.Close()
		s := c.settings(nil)
		holder, h := c.newHold(t.Context(), "x", s, nil), c.newHold(t.Context(), "x", s, nil)
		holder.tryEnter()
		lc := lockCall{client: c, settings: s, ctx: t.Context()}
		entered := make(chan error)
		go func() { entered <- lc.enter(h) }()
		synctest.Wait() // h waits behind an attempt without an outcome
		holder.outcome.announce()
		<-time.After(time.Minute)
		holder.slot.Load().HandOver(func(next *hold) bool {
			next.received = &handedOver{}
			return true
		})
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		if left := lc.timeLeft(); left != c.requestTimeout {
			t.Errorf("the waiter has %v for its attempt; want %v", left, c.requestTimeout)
		}
		h.leaveSlot()
	})
}
