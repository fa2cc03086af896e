package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/quorum"
)

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
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(len(c.faults))
				members := make([]driver.Store, len(all))
				for i, m := range all {
					m.set(c.faults[i])
					m.delay = func() time.Duration { return 5 * time.Millisecond } // so that a clause that tries for a while tries less often
					members[i] = conn{m}
				}
				err := drivertest.Check(t.Context(), drivertest.Config{
					Open: func(context.Context) (driver.Store, error) { return quorum.New(members, nil) },
					TTL:  400 * time.Millisecond,
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
