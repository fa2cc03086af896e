package dlock_test

import (
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// A chain of hand-overs uses no token twice, and none that the store has not granted.
func TestHandOverEndsWithTheStep(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &smallStep{callCounter{remote: remote{inner}}}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		acquires := store.acquires.Load()
		for range 11 {
			next := lockSoon(c, t.Context())
			mustUnlock(t, lease)
			got := <-next
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.lease.Token() <= lease.Token() {
				t.Errorf("token %d after %d", got.lease.Token(), lease.Token())
			}
			lease = got.lease
		}
		if a := store.acquires.Load() - acquires; a != 4 { // the first of the 11 has the last token of the grant before
			t.Errorf("%d grants for 10 locks with 3 tokens each; want 4", a)
		}
		mustUnlock(t, lease)
	})
}

// smallStep has 3 tokens in each grant.
type smallStep struct{ callCounter }

func (s *smallStep) Traits() driver.Traits {
	traits := s.callCounter.Traits()
	traits.TokenStep = 3
	return traits
}
