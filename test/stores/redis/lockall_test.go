package redis

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// TestLockAllInOneStep: names on one server, and in a cluster names with the same hash tag, are acquired by one script.
// In a cluster LockAll acquires others one after the other.
func TestLockAllInOneStep(t *testing.T) {
	for topology, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			top := start(t, inMemory...)
			for _, protocol := range protocols {
				store, client := openURL(t, top.url+"?protocol="+protocol)
				apart := []string{"a" + protocol, "b" + protocol, "c" + protocol, "d" + protocol}
				atOnce(t, store, apart, topology != "cluster")
				atOnce(t, store, []string{"{" + protocol + "}a", "{" + protocol + "}b"}, true)
				held := mustLock(t, client, apart[3])
				_, other := openURL(t, top.url+"?protocol="+protocol)
				if _, err := other.LockAll(t.Context(), apart, dlock.WithWait(0)); !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("LockAll with one name held: %v; want ErrHeld", err)
				}
				unlock(t, held)
				all, err := other.LockAll(t.Context(), apart)
				must(t, err)
				unlock(t, all)
			}
		})
	}
}

// atOnce demands that AcquireAll of the names works, or returns ErrUnsupported if it is not
// possible.
func atOnce(t *testing.T, store driver.Store, names []string, possible bool) {
	t.Helper()
	reqs := make([]driver.Request, len(names))
	for i, name := range names {
		reqs[i] = inMode(driver.Mode{}, name)
	}
	grants, err := store.(driver.BatchAcquirer).AcquireAll(t.Context(), reqs)
	if possible != (err == nil) || errors.Is(err, driver.ErrUnsupported) == possible {
		t.Errorf("AcquireAll of %q: %v; possible should be %v", names, err, possible)
	}
	for _, grant := range grants {
		mustRelease(t, store, grant)
	}
}
