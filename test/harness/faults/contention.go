package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// Contention are the faults of contenders. They need a rig of their own: the
// first fault needs a server on which the store has created nothing yet.
var Contention = []Fault{
	{"32 first-time contenders", firstContenders},
	{"a storm of contenders for several names", storm},
}

// firstContenders opens the store many times and requests a new name, all at the
// same moment. One contender gets the lock; the others get ErrHeld.
func firstContenders(t *testing.T, r rig) {
	const contenders = 32
	req := func() driver.Request { return driver.Request{Name: "first", Owner: driver.NewOwner(), TTL: limit} }
	begin := make(chan struct{})
	outcomes := make(chan error, contenders)
	for range contenders {
		go func() {
			<-begin
			store, err := r.Open(t.Context(), r.URL)
			if err != nil {
				outcomes <- fmt.Errorf("open the store: %w", err)
				return
			}
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Errorf("close the store: %v", err)
				}
			})
			_, err = store.Acquire(t.Context(), req())
			outcomes <- err
		}()
	}
	close(begin)
	granted := 0
	for range contenders {
		switch err := await.Event(t, outcomes, "an answer to a contender"); {
		case err == nil:
			granted++
		case !errors.Is(err, driver.ErrHeld):
			t.Errorf("a contender: %v; want ErrHeld", err)
		}
	}
	if granted != 1 {
		t.Errorf("%d of %d contenders have the lock", granted, contenders)
	}
}

// stormNames is the number of names in a storm.
const stormNames = 4

// storm lets many clients take several names at once in random order, so that the
// store's own locks collide. The store retries after a deadlock or a conflict,
// and callers do not see it. Each name has one holder at a time.
func storm(t *testing.T, r rig) {
	const clients, goroutines = 4, 4
	// No call is cancelled: what a cancelled attempt leaves behind is not part of
	// this test.
	var opened [clients]*dlock.Client // opened before the clock starts: a busy machine needs time for it
	for i := range opened {
		opened[i] = r.clientWith(t, &dlock.Options{RequestTimeout: limit}) // the limit of a busy machine
	}
	end := time.Now().Add(2 * r.TTL)
	var s stormState
	var all sync.WaitGroup
	for _, c := range opened {
		for range goroutines {
			all.Go(func() {
				for time.Now().Before(end) {
					if err := s.round(t.Context(), c, r.TTL); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d rounds in %v", s.rounds.Load(), 2*r.TTL)
	if s.rounds.Load() < stormNames {
		t.Errorf("only %d rounds", s.rounds.Load())
	}
	for i := range stormNames {
		if token := r.mustBeFree(t, stormName(i), "the storm has ended"); token <= s.tokens[i] {
			t.Errorf("%s: token %d after %d", stormName(i), token, s.tokens[i])
		}
	}
}

// stormState is what the contenders of a storm share.
type stormState struct {
	rounds atomic.Int64
	inside [stormNames]atomic.Int32
	tokens [stormNames]uint64 // of the last holder; guarded by the lock of the name
}

func stormName(i int) string { return fmt.Sprintf("storm-%d", i) }

// round acquires some names and releases them.
func (s *stormState) round(ctx context.Context, c *dlock.Client, ttl time.Duration) error {
	wanted := rand.Perm(stormNames)[:1+rand.IntN(stormNames-1)]
	names := make([]string, len(wanted))
	for i, n := range wanted {
		names[i] = stormName(n)
	}
	leases, err := c.LockAll(ctx, names, dlock.WithTTL(10*ttl))
	if err != nil {
		return fmt.Errorf("LockAll(%q): %w", names, err)
	}
	err = s.checkExclusive(wanted, names, leases)
	s.rounds.Add(1)
	return errors.Join(err, leases.Unlock(ctx))
}

// checkExclusive checks that there is no other holder and that tokens rise.
func (s *stormState) checkExclusive(wanted []int, names []string, leases *dlock.Leases) error {
	for i, n := range wanted {
		if others := s.inside[n].Add(1) - 1; others != 0 {
			return fmt.Errorf("%d other holders of %s", others, names[i])
		}
		token := leases.Token(names[i])
		if token <= s.tokens[n] {
			return fmt.Errorf("%s: token %d after %d", names[i], token, s.tokens[n])
		}
		s.tokens[n] = token
	}
	<-time.After(time.Millisecond) // in which another holder would be noticed
	for _, n := range slices.Backward(wanted) {
		s.inside[n].Add(-1)
	}
	return nil
}
