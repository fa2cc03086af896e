package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// TestNoLostWakeUps: one process holds a name for a moment, and one other process waits for it, so
// that no other wake-up hides a lost one. A lost wake-up would cost the rest of the TTL. Names are
// used again and again, so that channels are subscribed, linger, are left and subscribed again,
// also while connections are cut.
func TestNoLostWakeUps(t *testing.T) {
	type rig struct {
		topology func(testing.TB, ...string) topology
		cut      bool
		opts     []dlock.Option
	}
	for what, r := range map[string]rig{
		"one server":                           {topology: single},
		"one server, fair":                     {topology: single, opts: []dlock.Option{dlock.WithFair()}},
		"one server, connections that are cut": {topology: single, cut: true},
		"cluster, connections that are cut":    {topology: cluster, cut: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			top := r.topology(t, inMemory...)
			_, holder := openURL(t, top.url)
			_, other := openURL(t, top.url)
			const ttl, limit = 60 * time.Second, 15 * time.Second
			opts := append([]dlock.Option{dlock.WithTTL(ttl)}, r.opts...)
			ctx, cancel := context.WithTimeout(t.Context(), lostWakeUpsLast)
			defer cancel()
			var worst atomic.Int64
			var handovers atomic.Int64
			var wg sync.WaitGroup
			for i := range 24 {
				wg.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						name := fmt.Sprintf("lost-%d-%d", i, n%(1+i*i)) // some names are used again at once, some later, some never
						lease, err := holder.Lock(t.Context(), name, opts...)
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						w := &waiter{done: make(chan struct{})}
						go func() {
							defer close(w.done)
							w.lease, w.err = other.Lock(t.Context(), name, opts...)
						}()
						if rand.N(4) > 0 { // at any moment before the waiter sleeps
							<-time.After(rand.N(3 * time.Millisecond))
						}
						released := time.Now()
						if err := lease.Unlock(t.Context()); err != nil {
							t.Errorf("Unlock: %v", err)
						}
						select {
						case <-w.done:
						case <-time.After(limit):
							t.Errorf("%q was free for %v, and the only waiter slept", name, limit)
							<-w.done
						}
						took := time.Since(released)
						worst.Store(max(worst.Load(), int64(took))) // a race may lose the maximum
						handovers.Add(1)
						if w.err != nil {
							t.Errorf("Lock of the waiter: %v", w.err)
							return
						}
						if err := w.lease.Unlock(t.Context()); err != nil {
							t.Errorf("Unlock of the waiter: %v", err)
						}
					}
				})
			}
			for r.cut && ctx.Err() == nil {
				for _, server := range top.servers {
					server.ClientKillByFilter(t.Context(), "TYPE", "pubsub")
				}
				<-time.After(rand.N(100 * time.Millisecond))
			}
			wg.Wait()
			t.Logf("%d hand-overs, the longest took %v", handovers.Load(), time.Duration(worst.Load()))
		})
	}
}

// lostWakeUpsLast is how long the test runs on each topology.
const lostWakeUpsLast = 2 * time.Second
