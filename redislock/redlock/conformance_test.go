package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/backoff"
)

// persistent tries again after a split vote, which may refuse a free lock to all contenders. To tell it from a lock
// that is held, it asks for the holder: all contenders of the kit look the same.
type persistent struct{ *Store }

func (p persistent) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	for tries := range 20 {
		if grant, err = p.Store.Acquire(ctx, req); !errors.Is(err, driver.ErrHeld) {
			break
		}
		// The first votes for a name have the same token at every member, so that a split one looks like a lock that is
		// held until it is withdrawn.
		if backoff.Sleep(ctx, rand.N(time.Duration(tries+1)*10*time.Millisecond)) != nil {
			break
		}
		if _, held, unknown := p.Find(ctx, req.Name); held || unknown != nil {
			break
		}
	}
	return grant, err
}

// TestConformance runs the kit in virtual time, without and with failing members. No lock may
// be left in any of them.
func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []fault // by member
	}{
		{"five members", []fault{up, up, up, up, up}},
		{"a dead member", []fault{up, up, gone, up, up}},
		{"a silent and a dead member", []fault{up, mute, up, up, gone}},
		{"a member whose answers are lost", []fault{up, up, up, lost, up}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(len(c.faults))
				for i, m := range all {
					m.set(c.faults[i])
					m.delay = func() time.Duration { return 5 * time.Millisecond } // so that a clause that tries for a while tries less often
				}
				err := drivertest.Check(t.Context(), drivertest.Config{
					Open: func(context.Context) (driver.Store, error) {
						s, err := of(all, nil)
						return persistent{s}, err
					},
					TTL: 400 * time.Millisecond,
					Leftovers: func(context.Context) (left []string, err error) {
						for i, m := range all {
							for _, name := range m.locks() {
								left = append(left, fmt.Sprintf("%q at member %d", name, i+1))
							}
						}
						return left, nil
					},
				})
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}
