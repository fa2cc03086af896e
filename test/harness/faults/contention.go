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
)

// Contention are those who get in each other's way, for rigs of their own: the
// first fault wants a server on which nothing has been created yet.
var Contention = []Fault{
	{"32 first-time contenders", firstContenders},
	{"a storm of contenders for several names", storm},
}

// firstContenders: all open the store and ask for a name that nobody has asked
// for before, at the same moment. One gets it, and the others are told so.
func firstContenders(t *testing.T, r Rig) {
	const contenders = 32
	req := func() driver.Request { return driver.Request{Name: "first", Owner: driver.NewOwner(), TTL: limit} }
	begin := make(chan struct{})
	outcomes := make(chan error, contenders)
	for range contenders {
		go func() {
			<-begin
			store, err := r.Open(t.Context())
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
		switch err := happens(t, outcomes, "an answer to a contender"); {
		case err == nil:
			granted++
		case !errors.Is(err, driver.ErrHeld):
			t.Errorf("a contender: %v; want that it is held", err)
		}
	}
	if granted != 1 {
		t.Errorf("%d of %d contenders have the lock", granted, contenders)
	}
}

// stormNames is how many names there are in a storm.
const stormNames = 4

// storm: many processes take several names at once in whichever order, so that
// the store's own locks collide. What it calls a deadlock or a conflict is tried
// again, and nobody hears of it; one has a name at a time.
func storm(t *testing.T, r Rig) {
	const clients, goroutines = 4, 4
	// Nothing is cancelled: what an attempt leaves behind then is not what this is
	// about.
	var opened [clients]*dlock.Client // before the time begins: a busy machine needs some for it
	for i := range opened {
		opened[i] = r.client(t)
	}
	end := time.Now().Add(2 * r.TTL)
	var s stormWeather
	var all sync.WaitGroup
	for _, c := range opened {
		for range goroutines {
			all.Go(func() {
				for time.Now().Before(end) {
					if err := s.turn(t.Context(), c, r.TTL); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d turns in %v", s.turns.Load(), 2*r.TTL)
	if s.turns.Load() < stormNames {
		t.Errorf("only %d turns", s.turns.Load())
	}
	for i := range stormNames {
		if token := r.grants(t, stormName(i), "the storm is over"); token <= s.tokens[i] {
			t.Errorf("%s: token %d after %d", stormName(i), token, s.tokens[i])
		}
	}
}

// stormWeather is what those in a storm see.
type stormWeather struct {
	turns  atomic.Int64
	inside [stormNames]atomic.Int32
	tokens [stormNames]uint64 // of the last holder; belongs to whoever has the name
}

func stormName(i int) string { return fmt.Sprintf("storm-%d", i) }

// turn takes some names and gives them back.
func (s *stormWeather) turn(ctx context.Context, c *dlock.Client, ttl time.Duration) error {
	wanted := rand.Perm(stormNames)[:1+rand.IntN(stormNames-1)]
	names := make([]string, len(wanted))
	for i, n := range wanted {
		names[i] = stormName(n)
	}
	leases, err := c.LockAll(ctx, names, dlock.WithTTL(10*ttl))
	if err != nil {
		return fmt.Errorf("LockAll(%q): %w", names, err)
	}
	err = s.look(wanted, names, leases)
	s.turns.Add(1)
	return errors.Join(err, leases.Unlock(ctx))
}

// look checks who else is there.
func (s *stormWeather) look(wanted []int, names []string, leases *dlock.Leases) error {
	for i, n := range wanted {
		if others := s.inside[n].Add(1) - 1; others != 0 {
			return fmt.Errorf("%d others have %s", others, names[i])
		}
		token := leases.Token(names[i])
		if token <= s.tokens[n] {
			return fmt.Errorf("%s: token %d after %d", names[i], token, s.tokens[n])
		}
		s.tokens[n] = token
	}
	for _, n := range slices.Backward(wanted) {
		s.inside[n].Add(-1)
	}
	return nil
}
