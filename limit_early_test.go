package dlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// TestLimitBeforeTheAnswerIsNoOutage: a limit that ends soon after an attempt was sent, of this caller or
// of the one before it, proves no outage of a store that takes its time. No holder is known: the last
// one was lost.
func TestLimitBeforeTheAnswerIsNoOutage(t *testing.T) {
	for name, call := range limitedCalls {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, own attempt %v", name, own), func(t *testing.T) {
				bubble(t, func(t *testing.T, inner *memlock.Store) {
					store := newDistant(inner)
					store.delay = 100 * time.Millisecond
					c := dlock.New(store, nil)
					defer c.Close()
					lease := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(time.Second))
					const early = 50 * time.Millisecond
					left := time.Second - 100*time.Millisecond - 12*time.Millisecond // until the loss
					var all sync.WaitGroup
					if !own {
						all.Go(func() {
							if lease, err := c.Lock(t.Context(), "x"); err != nil {
								t.Error(err)
							} else {
								mustUnlock(t, lease)
							}
						})
						synctest.Wait()
						time.Sleep(left - early)
						left = early
					}
					undecided(t, name, call(t.Context(), c, left+early))
					all.Wait()
					_ = lease.Unlock(context.Background()) // it was lost
				})
			})
		}
	}
}
