package etcd

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestWatchReopensSoon: a watch that ends because the server compacted the revisions that it missed
// is opened again soon, also after many such ends, and wakes its waiters.
func TestWatchReopensSoon(t *testing.T) {
	t.Parallel()
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, kind)
			raw := rawClient(t, server.URL())
			p := proxy.Run(t, server.Addr())
			woken := make(chan struct{}, 1)
			stop, err := newStore(t, "etcd://"+p.Addr()).(driver.Watcher).Watch(t.Context(), request("x"), func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			fastest := limit
			// Without a reset the pause would reach its maximum after six ends: more than three
			// quarters of a second.
			for i := range 12 {
				p.Hold()
				p.Reset()
				for range 2 {
					reply, err := raw.Put(t.Context(), "other", "")
					if err != nil {
						t.Fatal(err)
					}
					if _, err := raw.Compact(t.Context(), reply.Header.Revision); err != nil {
						t.Fatal(err)
					}
				}
				start := time.Now()
				p.Deliver()
				select {
				case <-woken:
				case <-time.After(limit):
					t.Fatalf("end %d: not woken within %v", i, limit)
				}
				if i >= 7 {
					fastest = min(fastest, time.Since(start))
				}
			}
			if fastest >= 700*time.Millisecond {
				t.Errorf("the watch was open again after %v at best", fastest)
			}
		})
	}
}
