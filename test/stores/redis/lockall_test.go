package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// TestLockAllIsAllOrNone: names on one server are acquired by one script, others one after the
// other. In either case all are acquired, or none.
func TestLockAllIsAllOrNone(t *testing.T) {
	for topology, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster, "redlock": independent} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			top := start(t, inMemory...)
			for _, protocol := range protocols {
				if topology == "redlock" && protocol == "redisson" {
					continue // Redlock is always plain
				}
				url := top.url + "?protocol=" + protocol
				store, client := openURL(t, url)
				_, other := openURL(t, url)
				apart := []string{"a" + protocol, "b" + protocol, "c" + protocol, "d" + protocol}
				together := []string{"{" + protocol + "}a", "{" + protocol + "}b"}
				if batcher, ok := store.(driver.BatchAcquirer); ok {
					atOnce(t, store, batcher, apart, topology != "cluster")
					atOnce(t, store, batcher, together, true)
				}
				for _, names := range [][]string{apart, together} {
					held, err := other.Lock(t.Context(), names[len(names)-1])
					if err != nil {
						t.Fatal(err)
					}
					if _, err := client.LockAll(t.Context(), names, dlock.WithWait(0)); !errors.Is(err, dlock.ErrHeld) {
						t.Errorf("LockAll with one name held: %v; want ErrHeld", err)
					}
					eventually(t, "the others are free again", func() bool {
						lease, err := other.TryLock(t.Context(), names[0])
						if err != nil {
							return false
						}
						return lease.Unlock(t.Context()) == nil
					})
					if err := held.Unlock(t.Context()); err != nil {
						t.Fatal(err)
					}
					all, err := client.LockAll(t.Context(), names)
					if err != nil {
						t.Fatal(err)
					}
					for _, name := range names {
						if _, err := other.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrHeld) {
							t.Errorf("TryLock(%q) while LockAll holds it: %v; want ErrHeld", name, err)
						}
						if all.Token(name) == 0 {
							t.Errorf("%q has no token", name)
						}
					}
					if err := all.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestLockAllOfManyNames: one script acquires hundreds of names. Thousands would keep the server from
// serving others, and are refused before anything is sent.
func TestLockAllOfManyNames(t *testing.T) {
	t.Parallel()
	top := single(t, inMemory...)
	for _, protocol := range protocols {
		_, client := openURL(t, top.url+"?protocol="+protocol)
		names := make([]string, 8000)
		for i := range names {
			names[i] = fmt.Sprintf("%s-%d", protocol, i)
		}
		all, err := client.LockAll(t.Context(), names[:500])
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		before := served(t, top.servers[0])
		if _, err := client.LockAll(t.Context(), names); !errors.Is(err, dlock.ErrBadName) {
			t.Errorf("%s: LockAll of 8000 names: %v; want ErrBadName", protocol, err)
		}
		if sent := served(t, top.servers[0]) - before; sent > 0 {
			t.Errorf("%s: LockAll of 8000 names sent %d commands", protocol, sent)
		}
	}
}

// atOnce demands that AcquireAll of the names works, or returns ErrUnsupported if it is not
// possible.
func atOnce(t *testing.T, store driver.Store, batcher driver.BatchAcquirer, names []string, possible bool) {
	t.Helper()
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute}
	}
	grants, err := batcher.AcquireAll(t.Context(), reqs)
	if possible != (err == nil) || errors.Is(err, driver.ErrUnsupported) == possible {
		t.Errorf("AcquireAll of %q: %v; possible should be %v", names, err, possible)
	}
	for _, grant := range grants {
		if err := store.Release(t.Context(), grant); err != nil {
			t.Error(err)
		}
	}
}
