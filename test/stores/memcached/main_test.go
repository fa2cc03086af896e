// Package memcached tests memcachelock against a real memcached.
package memcached

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

func TestMain(m *testing.M) { bundle.Tests{Open: openURL, Agent: faults.RunAgent}.Main(m) }

// openURL opens the store with that URL, which trusts a server that has just started.
func openURL(_ context.Context, url string) (driver.Store, error) {
	return open(strings.TrimPrefix(url, "memcached://"))
}

// open returns a store that trusts a server that has just started.
func open(addr string) (driver.Store, error) {
	return memcachelock.New(addr, &memcachelock.Options{RestartDelay: -1})
}

// openNow opens a store until the end of the test.
func openNow(t *testing.T, addr string) driver.Store {
	t.Helper()
	store, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// take acquires a lock that is free.
func take(t *testing.T, store driver.Store, name string) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return grant
}
