package quorum

import (
	"errors"
	"iter"
	"math/bits"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// rules make several stores one lock. They are data so that tests can break each of them
// and see that it is noticed.
type rules struct {
	// majority is how many members it takes. Any two majorities have one in common.
	majority int
	// drift is by how much the clocks of the members may differ within a TTL.
	drift func(ttl time.Duration) time.Duration
	// mayHold reports whether a member may have granted an attempt that ended with err, and
	// must release it if the attempt fails.
	mayHold func(err error) bool
	// mayRepair reports whether a lock may be acquired again at members that lost it.
	mayRepair func(renewed int) bool
	// alias returns the owner of an attempt at the members.
	alias func(driver.Owner) driver.Owner
	// writeBack makes a majority store a token before it is given out.
	writeBack bool
}

func redlock(members int) rules {
	majority := members/2 + 1
	return rules{
		majority: majority,
		// The implementations of Redlock agree on this.
		drift: func(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond },
		// Only a refusal proves that the member holds nothing: another error may have come
		// after the lock was granted.
		mayHold:   func(err error) bool { return !errors.Is(err, driver.ErrHeld) },
		mayRepair: func(renewed int) bool { return renewed >= majority },
		alias:     func(driver.Owner) driver.Owner { return driver.NewOwner() },
		writeBack: true,
	}
}

// set is a set of members, by their index.
type set uint64

func (s set) has(i int) bool { return s&(1<<i) != 0 }
func (s *set) add(i int)     { *s |= 1 << i }
func (s *set) remove(i int)  { *s &^= 1 << i }
func (s set) len() int       { return bits.OnesCount64(uint64(s)) }

// all yields the members in order.
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(bits.TrailingZeros64(uint64(s))); s &= s - 1 {
		}
	}
}

// allMembers returns the set of n members.
func allMembers(n int) set { return 1<<n - 1 }
