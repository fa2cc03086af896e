package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// limit bounds the wait for an event that must happen.
const limit = 30 * time.Second

func open(t testing.TB, url string) *zklock.Store {
	t.Helper()
	store, err := zklock.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func client(t testing.TB, store driver.Store, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c := dlock.New(store, opts)
	t.Cleanup(func() { _ = c.Close() }) // some tests stop its server
	return c
}

// admin returns a connection for the test itself.
func admin(t testing.TB, addr string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{addr}, limit, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// contenders returns the nodes of a lock's holder and waiters, without anchors.
func contenders(t testing.TB, conn *zk.Conn, name string) []string {
	t.Helper()
	return slices.DeleteFunc(childrenOf(t, conn, name), func(child string) bool { return !strings.Contains(child, "lock-") })
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: limit, Holder: driver.Holder{Host: "h", PID: 1, Program: "test"}}
}

func acquire(t testing.TB, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	grant, err := store.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", req.Name, err)
	}
	return grant
}

func release(t testing.TB, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release(%q): %v", grant.Name, err)
	}
}

func wantHeld(t testing.TB, store driver.Store, name, why string) {
	t.Helper()
	if _, err := store.Acquire(t.Context(), request(name)); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire(%q): %v; want ErrHeld: %s", name, err, why)
	}
}

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// happens waits for an event.
func happens[T any](t testing.TB, event <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-event:
	case <-time.After(limit):
		t.Fatalf("%s: not within %v", what, limit)
	}
	return got
}
