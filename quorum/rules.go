package quorum

import (
	"errors"
	"math/bits"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// rules are what makes several stores one lock. They are apart from the rest so
// that tests can break them, one at a time, and see that it is noticed.
type rules struct {
	// majority is how many members it takes. Any two majorities have one in common.
	majority int
	// drift is by how much the clocks of the members may differ within a TTL.
	drift func(ttl time.Duration) time.Duration
	// mayHold says whether a member that answered an attempt like this may have
	// granted it, so that it must be undone there if the attempt fails.
	mayHold func(err error) bool
	// mayRepair says whether a lock that so many members renewed may be taken
	// again where it was lost.
	mayRepair func(renewed int) bool
	// alias is what the members know an attempt of an owner by.
	alias func(driver.Owner) driver.Owner
	// writeBack says whether a majority stores a token before it is given out.
	writeBack bool
}

func redlock(members int) rules {
	majority := members/2 + 1
	return rules{
		majority: majority,
		// What the implementations of Redlock agree on.
		drift: func(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond },
		// Only who was refused certainly has nothing: an error may have come
		// after the lock was taken.
		mayHold:   func(err error) bool { return !errors.Is(err, driver.ErrHeld) },
		mayRepair: func(renewed int) bool { return renewed >= majority },
		alias:     func(driver.Owner) driver.Owner { return driver.NewOwner() },
		writeBack: true,
	}
}

// set is a set of members, by their position.
type set uint64

func (s set) has(i int) bool { return s&(1<<i) != 0 }
func (s *set) add(i int)     { *s |= 1 << i }
func (s *set) remove(i int)  { *s &^= 1 << i }
func (s set) len() int       { return bits.OnesCount64(uint64(s)) }

// everybody is the set of the first n members.
func everybody(n int) set { return 1<<n - 1 }
