package faults

import (
	"math/rand/v2"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Names that the workers of a Mix use in other modes, if the store offers them. No disturbance
// deletes them: what a lock of several holders consists of depends on the store.
const (
	readersName = "name-readers" // shared or exclusive, at random
	permitsName = "name-permits" // a semaphore
	permits     = 2              // its limit
)

// modeNames returns the names of the other modes that a store with these traits offers.
func modeNames(traits driver.Traits) (names []string) {
	if traits.Shared {
		names = append(names, readersName)
	}
	if traits.Limits {
		names = append(names, permitsName)
	}
	return names
}

// modeFor returns the mode of the next acquisition of name, and its options.
func modeFor(name string) (driver.Mode, []dlock.Option) {
	switch {
	case name == permitsName:
		return driver.Mode{Limit: permits}, []dlock.Option{dlock.WithLimit(permits)}
	case name == readersName && rand.IntN(3) > 0:
		return driver.Mode{Shared: true}, []dlock.Option{dlock.WithShared()}
	}
	return driver.Mode{}, nil
}

// acquireAlone acquires everything that name has: the exclusive lock, or all permits.
func (r rig) acquireAlone(m *mixRun, c *dlock.Client, name string) (leases []*dlock.Lease) {
	if name != permitsName {
		return []*dlock.Lease{r.lock(m.t, c, name)}
	}
	for range permits {
		leases = append(leases, r.lock(m.t, c, name, dlock.WithLimit(permits)))
	}
	return leases
}
