package redlock

import (
	"slices"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// TestBallotCountsHoldersInAnyOrder: the order of the refusals does not matter for the holder
// that has a majority, and for the number of holders.
func TestBallotCountsHoldersInAnyOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {3, 0, 4, 1, 2}} {
		b := newBallot(5)
		for _, i := range order {
			pid := 1 // has members 0, 2 and 3
			if slices.Contains([]int{1, 4}, i) {
				pid = 2
			}
			b.count(i, answer{held: &driver.HeldError{Token: uint64(pid), Holder: driver.Holder{PID: pid}}})
		}
		held := b.heldBy("x")
		if _, holders := b.blockers(); held == nil || held.Holder.PID != 1 || holders != 2 || !b.lost() {
			t.Errorf("answers in the order %v: held by %+v, %d holders; want the first of two", order, held, holders)
		}
	}
}
