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

// TestConformance runs the kit on quorums of stores in memory, without and with failing
// members. No lock may be left in any of them. The quorums run one after another, because
// members are slow if all share the machine.
func TestConformance(t *testing.T) {
	type fault = func(*memlock.Store) driver.Store
	for _, c := range []struct {
		name   string
		faults []fault // by member
	}{
		{"five members", []fault{nil, nil, nil, nil, nil}},
		{"a dead member", []fault{nil, nil, asDead, nil, nil}},
		{"a hung and a dead member", []fault{nil, asHung, nil, nil, asDead}},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers := make([]*memlock.Store, len(c.faults))
			members := make([]driver.Store, len(c.faults))
			for i, fault := range c.faults {
				servers[i] = memlock.New()
				if members[i] = servers[i]; fault != nil {
					members[i] = fault(servers[i])
				}
			}
			opts := &quorum.Options{MemberTimeout: 300 * time.Millisecond}
			drivertest.Run(t, drivertest.Config{
				Open:     func(context.Context) (driver.Store, error) { return quorum.New(members, opts) },
				TTL:      1200 * time.Millisecond,
				Parallel: 8,
				Leftovers: func(ctx context.Context) (left []string, err error) {
					for i, server := range servers {
						for info, err := range server.List(ctx, "") {
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
