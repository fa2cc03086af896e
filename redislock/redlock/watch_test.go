package redlock

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestWaiterIsWokenWhenMajorityMayBeFree: a waiter is woken as soon as a majority may be free. Of
// members that are not watched it is not known whether they are free.
func TestWaiterIsWokenWhenMajorityMayBeFree(t *testing.T) {
	for name, c := range map[string]struct {
		mute []int
		want []int64 // wake-ups after the first, second, third release
	}{
		"all are watched":   {nil, []int64{0, 0, 1}},
		"four are watched":  {[]int{4}, []int64{0, 1, 1}},
		"three are watched": {[]int{3, 4}, []int64{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
				settle(t, s)
				holder := driver.NewOwner()
				for _, c := range all {
					c.take(t, driver.Request{Name: "x", Owner: holder, TTL: time.Hour}, 1<<30)
				}
				for _, i := range c.mute {
					all[i].set(mute)
				}
				var woken atomic.Int64
				req := request("x", time.Minute)
				stop, err := s.Watch(t.Context(), req, func() { woken.Add(1) })
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				time.Sleep(time.Second)
				if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("want ErrHeld, got: %v", err)
				}
				woken.Store(0)
				for i, want := range c.want {
					if err := all[i].server.locks.Release(t.Context(), driver.Grant{Name: "x", Owner: holder}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if got := woken.Load(); got != want {
						t.Errorf("%d members were released: want %d wake-ups, got %d", i+1, want, got)
					}
				}
				all[2].set(mute)
				all[3].set(mute)
				all[4].set(mute)
				if _, err := s.Watch(t.Context(), request("x", time.Minute), func() {}); !errors.Is(err, driver.ErrUnreachable) {
					t.Errorf("with two members of five: want ErrUnreachable, got: %v", err)
				}
			})
		})
	}
}

// TestLateSubscriptionCountsAsRelease: a member may have been released before it was watched, so
// that a late subscription counts as a release.
func TestLateSubscriptionCountsAsRelease(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
		settle(t, s)
		for _, c := range all[3:] {
			c.delay = func() time.Duration { return 10 * time.Millisecond }
		}
		holder := driver.NewOwner()
		for _, c := range all {
			c.take(t, driver.Request{Name: "x", Owner: holder, TTL: time.Hour}, 0)
		}
		var woken atomic.Int64
		stop, err := s.Watch(t.Context(), request("x", time.Minute), func() { woken.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		woken.Store(0)
		for _, i := range []int{3, 4} { // they are not watched yet
			if err := all[i].server.locks.Release(t.Context(), driver.Grant{Name: "x", Owner: holder}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := woken.Load(); n != 0 {
			t.Errorf("two members of five are free: want no wake-up, got %d", n)
		}
		if err := all[0].server.locks.Release(t.Context(), driver.Grant{Name: "x", Owner: holder}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if woken.Load() == 0 {
			t.Error("three members of five are free: want a wake-up, got none")
		}
	})
}
