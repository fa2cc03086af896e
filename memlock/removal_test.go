package memlock

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestExpiredLocksAreRemoved: names that dead holders locked once do not add up.
func TestExpiredLocksAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := New()
		take := func(name string, ttl time.Duration) driver.Grant {
			grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return grant
		}
		kept := take("kept", time.Hour)
		for i := range 50 * minRecords {
			take(fmt.Sprint(i), time.Second)
			if i%100 == 0 {
				time.Sleep(time.Second) // virtual
			}
		}
		if n := len(store.locks); n > 2*minRecords {
			t.Errorf("%d records are kept, of which 101 can be of locks that are held", n)
		}
		if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil {
			t.Errorf("the lock that is held was forgotten too: %v", errs)
		}
	})
}

// TestNamesDoNotAddUp: a store may keep some records for names that come again, but 10,000
// names that were locked, waited for and released leave no more than that.
func TestNamesDoNotAddUp(t *testing.T) {
	store := New()
	ctx := t.Context()
	for i := range 10_000 {
		req := driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner(), TTL: time.Minute, Fair: true, Queue: true}
		grant, err := store.Acquire(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		waiter := req
		waiter.Owner = driver.NewOwner()
		if _, err := store.Acquire(ctx, waiter); err == nil {
			t.Fatalf("%q was granted twice", req.Name)
		}
		stop, err := store.Watch(ctx, waiter, func() {})
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if err := store.Release(ctx, driver.Grant{Name: req.Name, Owner: waiter.Owner}); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("giving up a place: want ErrNotHeld, got: %v", err)
		}
		if err := store.Release(ctx, grant); err != nil {
			t.Fatal(err)
		}
	}
	if l, q, w := len(store.locks), len(store.queues), store.waiters.Len(); l > minRecords || q+w != 0 {
		t.Errorf("left behind: %d records of locks, %d queues, %d names with waiters", l, q, w)
	}
}

// TestExpiredPlacesAreRemoved: places of dead waiters do not add up, although their names are never
// used again.
func TestExpiredPlacesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := New()
		for i := range 20 * minRecords {
			req := driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner(), TTL: time.Second, Fair: true, Queue: true}
			if _, err := store.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			req.Owner = driver.NewOwner()
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			if i%100 == 0 {
				time.Sleep(time.Second) // virtual
			}
		}
		if n := len(store.queues); n > 2*minRecords {
			t.Errorf("%d queues are kept, of which 101 can have a place that has not expired", n)
		}
	})
}
