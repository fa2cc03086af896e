package redlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// deaf is a member that ignores the context of its attempts.
type deaf struct {
	*fakeMember
	let chan struct{}
}

func (d deaf) Acquire(context.Context, driver.Request, uint64) (uint64, error) {
	<-d.let
	return 0, errRefused
}

// TestGoroutinesDoNotPileUp: a member that hangs blocks a limited number of calls.
func TestGoroutinesDoNotPileUp(t *testing.T) {
	const limit = 200 // in use at a time, of 20,000 calls
	for _, name := range []string{"mute", "deaf"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(5)
				d := deaf{all[4], make(chan struct{})}
				members := []master.Store{all[0], all[1], all[2], all[3], d}
				if name == "mute" {
					all[4].set(mute)
					members[4] = all[4]
				}
				s := start(t, members)
				before, most := runtime.NumGoroutine(), 0
				for i := range 4000 {
					grant := mustAcquire(t, s, request("x", time.Minute))
					mustRelease(t, s, grant)
					if i%10 == 0 {
						time.Sleep(10 * time.Millisecond)
					}
					most = max(most, runtime.NumGoroutine()-before)
				}
				if most > limit {
					t.Errorf("%d goroutines for one member that hangs", most)
				}
				close(d.let)
			})
		})
	}
}

// TestExpiredAcquisitionsAreForgotten: the store forgets failed attempts and expired locks that
// were never released.
func TestExpiredAcquisitionsAreForgotten(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		all[0].set(gone)
		for i := range 3_000 {
			grant := mustAcquire(t, s, request(fmt.Sprint(i), time.Second)) // which is never released
			if _, err := s.Acquire(t.Context(), request(grant.Name, time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if n := len(s.acquisitions); n > 2048 {
			t.Errorf("%d acquisitions are remembered, of which 200 have not expired", n)
		}
	})
}

// TestRefusedAttemptsAreForgotten: the store forgets refused attempts soon, also if their TTL is
// long. One member is out of reach, so that it may have granted them.
func TestRefusedAttemptsAreForgotten(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		all[0].set(gone)
		mustAcquire(t, s, request("x", 10*time.Hour))
		for i := range 5_000 {
			refusal(t, s, request("x", time.Hour))
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if n := len(s.acquisitions); n > 2048 {
			t.Errorf("%d attempts are remembered, of which 300 ended within 3 s", n)
		}
	})
}
