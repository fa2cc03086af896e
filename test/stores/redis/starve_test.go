package redis

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestFairCallersDoNotStarveOthers: two fair processes always have the lock in turn. Processes without
// WithFair have it about as often, whether they come later or waited before.
func TestFairCallersDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	type options = []dlock.Option
	fair, shared, limit := dlock.WithFair(), dlock.WithShared(), dlock.WithLimit(1)
	long := dlock.WithTTL(time.Hour) // so that polls come too late
	for what, callers := range map[string]struct {
		holder       options
		fair, others []options
	}{
		"locks":   {options{fair}, []options{{fair}, {fair}}, []options{{long}, {long, shared}}},
		"readers": {options{fair}, []options{{fair, shared}, {fair, shared}}, []options{{long}}},
		"permits": {options{fair, limit}, []options{{fair, limit}, {fair, limit}}, []options{{long, limit}}},
	} {
		for _, order := range []string{"fair first", "fair last"} {
			t.Run(what+", "+order, func(t *testing.T) {
				t.Parallel()
				name := what + " " + order
				_, holder := openURL(t, server.URL())
				lease, err := holder.Lock(t.Context(), name, callers.holder...)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer cancel()
				begin := func(callers []options) (counts []*atomic.Int64) {
					before := raw.PubSubNumSub(t.Context(), "redisson_lock__channel:{"+name+"}").Val()
					for _, opts := range callers {
						count := new(atomic.Int64)
						counts = append(counts, count)
						_, c := openURL(t, server.URL())
						running.Go(func() {
							for ctx.Err() == nil {
								_ = c.Do(ctx, name, func(context.Context) error {
									count.Add(1)
									time.Sleep(time.Millisecond) // what the holder does
									return nil
								}, opts...)
							}
						})
					}
					await.Until(t, "all callers wait", func() bool {
						now := raw.PubSubNumSub(t.Context(), "redisson_lock__channel:{"+name+"}").Val()
						for channel, n := range now {
							return n == before[channel]+int64(len(callers))
						}
						return false
					})
					return counts
				}
				first, second := callers.fair, callers.others
				if order == "fair last" {
					first, second = second, first
				}
				counts := append(begin(first), begin(second)...)
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				least, most := int64(0), int64(0)
				await.Until(t, "every caller had the lock 50 times", func() bool {
					least, most = math.MaxInt64, 0
					for _, count := range counts {
						least, most = min(least, count.Load()), max(most, count.Load())
					}
					return least >= 50
				})
				if most > 10*least {
					t.Errorf("one caller had the lock %d times, another one %d times", least, most)
				}
			})
		}
	}
}
