package memcached

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestQuorum: three servers are a quorum, which bears the loss of one, and the same
// server twice is none. Of the servers' names nothing is left.
func TestQuorum(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Memcached)
	members := func(addrs ...string) []driver.Store {
		var list []driver.Store
		for _, addr := range addrs {
			store, err := open(addr)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, store)
		}
		return list
	}
	lock := func(stores []driver.Store) error {
		q, err := quorum.New(stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := dlock.New(q, &dlock.Options{TTL: 10 * time.Second})
		lease, err := client.Lock(bounded(t), "x")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		return errors.Join(err, client.Close(), q.Close(), closeAll(stores))
	}
	addrs := group.Addrs()
	if err := lock(members(addrs...)); err != nil {
		t.Errorf("three servers: %v", err)
	}
	if err := lock(members(addrs[0], addrs[1], addrs[0])); err == nil || !strings.Contains(err.Error(), "same server") {
		t.Errorf("one server twice: %v; want that it says so", err)
	}
	for _, addr := range addrs {
		if left, err := keys(t.Context(), addr); err != nil || len(left) > 0 {
			t.Errorf("left at %s: %q, %v", addr, left, err)
		}
	}
	if err := group[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := lock(members(addrs...)); err != nil {
		t.Errorf("two of three servers: %v", err)
	}
}

// TestNameOfAnother: a store that gave the server a name does not take the one away
// that another gave it after a restart.
func TestNameOfAnother(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	first, second := openNow(t, server.Addr()), openNow(t, server.Addr())
	identify := func(store driver.Store) string {
		t.Helper()
		name, err := store.(driver.Identifier).Identify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	identify(first)
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	name := identify(second) // the first number of all, as before
	eventually(t, "the first store has a connection again", func() bool {
		_, _, err := first.(driver.Finder).Find(t.Context(), "a")
		return err == nil
	})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if now := identify(openNow(t, server.Addr())); now != name {
		t.Errorf("the server's name is %s, and was %s", now, name)
	}
}

func closeAll(stores []driver.Store) error {
	var errs []error
	for _, store := range stores {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}
