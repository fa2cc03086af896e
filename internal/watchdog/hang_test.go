package watchdog

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// One server of a store hangs: a call ends by its limit if it has a hold of that server. Holds of
// the other servers are renewed in time, however many calls hang, and not every hold has a call.
func TestHangingCallsLeaveSendersForOthers(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var underWay, most atomic.Int64
				b := start(t, func(ctx context.Context, grants []driver.Grant) []error {
					defer underWay.Add(-1)
					most.Store(max(most.Load(), underWay.Add(1)))
					errs := make([]error, len(grants))
					for i, g := range grants {
						if strings.HasPrefix(g.Name, "hangs") {
							<-ctx.Done()
							errs[i] = ctx.Err()
						}
					}
					return errs
				})
				var healthy []*record
				for i := range 800 {
					b.watch(fmt.Sprint("hangs ", i), time.Minute, false)
					if i%100 == 0 {
						_, r := b.watch(fmt.Sprint("healthy ", i), ttl, false)
						healthy = append(healthy, r)
					}
					time.Sleep(37 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				lost := 0
				for _, r := range healthy {
					if r.lost != nil {
						lost++
					}
				}
				if lost > 0 {
					t.Errorf("%d of %d holds of other servers were lost", lost, len(healthy))
				}
				if n := most.Load(); n > 150 {
					t.Errorf("%d calls were under way together; want a bound", n)
				}
			})
		})
	}
}
