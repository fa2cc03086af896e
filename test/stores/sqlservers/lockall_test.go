package sqlservers

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// TestLockAllOverASlowLink: how long LockAll and Unlock take depends on the link, not on the number
// of names. With a few round trips for each name they would never end within the request timeout.
func TestLockAllOverASlowLink(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		const delay = 10 * time.Millisecond // each way
		store, network := s.behindProxy(t)
		client := dlock.New(store, nil)
		closeAfter(t, client)
		lockAll := func(prefix string, n int) (locked, unlocked time.Duration) {
			t.Helper()
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("%s/%03d", prefix, i)
			}
			start := time.Now()
			leases, err := client.LockAll(within(t), names, dlock.WithTTL(10*time.Second))
			locked = time.Since(start)
			if err != nil {
				t.Fatalf("LockAll of %d names after %v: %v", n, locked, err)
			}
			start = time.Now()
			if err := leases.Unlock(within(t)); err != nil {
				t.Errorf("Unlock of %d names: %v", n, err)
			}
			return locked, time.Since(start)
		}
		lockAll("warm", 2)
		network.Delay(delay)
		few, fewUnlocked := lockAll("few", 3)
		for _, when := range []string{"new", "known"} {
			many, unlocked := lockAll("many", 150)
			t.Logf("150 %s names: LockAll %v, Unlock %v; three new names: %v, %v", when, many, unlocked, few, fewUnlocked)
			if many > 5*few {
				t.Errorf("LockAll of 150 %s names took %v, of three %v", when, many, few)
			}
			if unlocked > 10*fewUnlocked {
				t.Errorf("Unlock of 150 %s names took %v, of three %v", when, unlocked, fewUnlocked)
			}
		}
	})
}

// TestBatchesOfCommonNames: batches that have names in common, some of them new, exclude each other and
// do not fail because of each other.
func TestBatchesOfCommonNames(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		const names, rounds = 10, 5
		stores := []*sqllock.Store{s.open(t), s.open(t)}
		var holders [names * rounds]atomic.Int32
		var all sync.WaitGroup
		for i := range 4 {
			store := stores[i%2]
			all.Go(func() {
				for round := range rounds {
					var reqs []driver.Request
					for n := range names {
						if (n+i)%4 > 0 {
							reqs = append(reqs, request(fmt.Sprintf("%03d", round*names+n)))
						}
					}
					grants, err := store.AcquireAll(within(t), reqs)
					if driver.Unchanged(err) {
						continue
					}
					if err != nil {
						t.Errorf("AcquireAll: %v", err)
						return
					}
					for _, change := range []int32{1, -1} {
						for _, grant := range grants {
							n, err := strconv.Atoi(grant.Name)
							if now := holders[n].Add(change); err != nil || now > 1 {
								t.Errorf("%q has %d holders, %v", grant.Name, now, err)
							}
						}
					}
					release(t, store, grants...)
				}
			})
		}
		all.Wait()
	})
}
