package dlock_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

func TestLeasesRemainingIsTheShortest(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		ttl := dlock.WithFixedTTL(10 * time.Second)
		outer := mustLock(t, c, t.Context(), "a", ttl)
		time.Sleep(4 * time.Second) // virtual
		all, err := c.LockAll(outer.Context(), []string{"a", "b"}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := all.Remaining(), outer.Remaining(); got != want || got > 6*time.Second || got < 5*time.Second {
			t.Errorf("%v remain, want the %v of the lock that was acquired first", got, want)
		}
		if err := all.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if got := all.Remaining(); got != 0 {
			t.Errorf("%v remain after Unlock", got)
		}
		mustUnlock(t, outer)
	})
}
