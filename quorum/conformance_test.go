package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// TestConformance runs the kit on quorums of stores in memory, whole and with
// members that fail. Nothing may be left in any of them. They come one after
// another, because a member that must share its machine with all of them is slow.
func TestConformance(t *testing.T) {
	type fault = func(*memlock.Store) driver.Store
	for _, c := range []struct {
		name   string
		faults []fault // by member
	}{
		{"five members", []fault{nil, nil, nil, nil, nil}},
		{"a dead one", []fault{nil, nil, asDead, nil, nil}},
		{"a hung and a dead one", []fault{nil, asHung, nil, nil, asDead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cells := make([]*memlock.Store, len(c.faults))
			members := make([]driver.Store, len(c.faults))
			for i, fault := range c.faults {
				cells[i] = memlock.New()
				if members[i] = cells[i]; fault != nil {
					members[i] = fault(cells[i])
				}
			}
			opts := &quorum.Options{MemberTimeout: 300 * time.Millisecond}
			drivertest.Run(t, drivertest.Config{
				Open:     func(context.Context) (driver.Store, error) { return quorum.New(members, opts) },
				TTL:      1200 * time.Millisecond,
				Parallel: 8,
				Leftovers: func(ctx context.Context) (left []string, err error) {
					for i, cell := range cells {
						for info, err := range cell.List(ctx, "") {
							if err != nil {
								return nil, err
							}
							left = append(left, fmt.Sprintf("%q at member %d", info.Name, i+1))
						}
					}
					return left, nil
				},
			})
		})
	}
}
