package sqlrig

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Places shows that a waiter that tries twice has one place, that it keeps the place by
// trying often, and that it begins at the end after it gave up the place or let it lapse.
func (d *Database) Places(t *testing.T, raw string) {
	t.Helper()
	store := d.Opened(t, raw)
	request := func() driver.Request {
		req := Request("x")
		req.TTL, req.Fair, req.Queue = FaultTTL, true, true
		return req
	}
	queue := func(req driver.Request) {
		t.Helper()
		if _, err := store.Acquire(Within(t), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
		}
	}
	holder := request()
	holder.TTL = time.Hour
	grant, err := store.Acquire(Within(t), holder)
	if err != nil {
		t.Fatal(err)
	}
	quitter, lapsed, often := request(), request(), request()
	queue(quitter)
	queue(lapsed)
	queue(often)
	queue(quitter)
	if err := store.Release(Within(t), driver.Grant{Name: "x", Owner: quitter.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("giving up a place: %v; want ErrNotHeld", err)
	}
	queue(quitter)
	for end := time.Now().Add(FaultTTL + FaultTTL/2); time.Now().Before(end); <-time.After(FaultTTL / 50) {
		queue(often)
		queue(quitter)
	}
	queue(lapsed)
	if err := store.Release(Within(t), grant); err != nil {
		t.Fatal(err)
	}
	for i, req := range []driver.Request{often, quitter, lapsed} {
		for _, other := range []driver.Request{often, quitter, lapsed}[i+1:] {
			queue(other)
		}
		grant, err := store.Acquire(Within(t), req)
		if err != nil {
			t.Fatalf("number %d in the queue: %v", i+1, err)
		}
		if err := store.Release(Within(t), grant); err != nil {
			t.Fatal(err)
		}
	}
}
