package etcdlock

import (
	"slices"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// followedPosition is a position behind some keys, seen at revision 10, that a watch keeps up to
// date.
func followedPosition(complete bool, ahead ...string) position {
	return followedPositionIn(driver.Mode{}, complete, ahead...)
}

func followedPositionIn(mode driver.Mode, complete bool, ahead ...string) position {
	p := position{queueView: queueView{blockRule: blockRuleFor("q/", mode), ownRevision: 10, revision: 10, ahead: ahead, complete: complete}}
	p.follow(&nameWatch{from: 10})
	return p
}

func TestPlaceIsFirstWhenAllKeysAheadAreDeleted(t *testing.T) {
	p := followedPosition(true, "b", "a")
	if p.noteDeleted("b", 11) || p.isFree() { // a waiter that gave up
		t.Error("the place is first although the holder's key exists")
	}
	if p.noteDeleted("c", 12) || p.isFree() {
		t.Error("the place is first because a key behind it was deleted")
	}
	if !p.noteDeleted("a", 13) || !p.isFree() {
		t.Error("the place is not first although all keys ahead were deleted")
	}
}

// TestPlaceIgnoresEarlierDeletions: a process that takes a lock again uses the same key as before.
// The deletion of the earlier key may be reported late.
func TestPlaceIgnoresEarlierDeletions(t *testing.T) {
	p := followedPosition(true, "a")
	if p.noteDeleted("a", 10) || p.isFree() {
		t.Error("the place is first because of a deletion before the server saw the queue")
	}
}

func TestPlaceBehindUnknownKeysAsksAgain(t *testing.T) {
	p := followedPosition(false, "b", "a")
	if p.noteDeleted("a", 11) || !p.noteDeleted("b", 12) {
		t.Error("the waiter has to ask again when all known keys are deleted, and only then")
	}
	if p.isFree() {
		t.Error("the place is first although it does not know all keys ahead")
	}
}

// TestPermitToleratesKeysAhead: a permit waits until there are fewer keys ahead than permits, and
// until all of them have the same limit.
func TestPermitToleratesKeysAhead(t *testing.T) {
	two := driver.Mode{Limit: 2}
	p := followedPositionIn(two, true, "q/~limit2-c", "q/~limit2-b", "q/~limit2-a")
	if p.noteDeleted("q/~limit2-b", 11) || p.isFree() {
		t.Error("the permit is free although two others are ahead")
	}
	if !p.noteDeleted("q/~limit2-c", 12) || !p.isFree() {
		t.Error("the permit is not free although one other is ahead")
	}
	p = followedPositionIn(two, true, "q/1f", "q/~limit2-b", "q/~limit2-a")
	if p.noteDeleted("q/~limit2-b", 11) || p.isFree() {
		t.Error("the permit is free although an exclusive key is ahead")
	}
	if !p.noteDeleted("q/~limit2-a", 11) || p.isFree() { // "q/1f" has the lock now: the waiter is refused
		t.Error("the waiter does not ask although only an exclusive key is ahead")
	}
	if !p.noteDeleted("q/1f", 12) || !p.isFree() {
		t.Error("the permit is not free although nothing is ahead")
	}
}

// TestWaiterBehindAnotherModeAsks: the first key is deleted, and a key in another mode has the
// lock: the waiter asks, and is refused. It does not ask when a key behind the first is deleted.
func TestWaiterBehindAnotherModeAsks(t *testing.T) {
	for mode, ahead := range map[driver.Mode][]string{ // the nearest first
		{}:             {"q/1e", "q/~limit2-b", "q/1f"},
		{Shared: true}: {"q/1e", "q/~limit2-b", "q/1f"},
		{Limit: 1}:     {"q/~limit1-c", "q/1f", "q/~limit1-a"},
		{Limit: 2}:     {"q/~limit2-c", "q/1f", "q/~limit2-a"},
	} {
		p := followedPositionIn(mode, true, slices.Clone(ahead)...)
		if !p.noteDeleted(ahead[2], 11) || p.isFree() {
			t.Errorf("a waiter in mode %v does not ask when the lock is in another mode", mode)
		}
		p = followedPositionIn(mode, true, ahead...)
		if p.noteDeleted(ahead[1], 11) || p.isFree() {
			t.Errorf("a waiter in mode %v asks although the holder is the same", mode)
		}
	}
}

// TestUnfollowedPlaceAsksAgain: where the watch may miss deletions, every deletion is a reason to
// ask, and none is proof.
func TestUnfollowedPlaceAsksAgain(t *testing.T) {
	for state, watch := range map[string]*nameWatch{
		"not open yet":                {},
		"open since a later revision": {from: 11},
		"ahead of the answer":         {from: 5, lastDeletion: 11},
	} {
		p := position{queueView: queueView{ownRevision: 10, revision: 10, ahead: []string{"a"}, complete: true}}
		if p.follow(watch) {
			t.Errorf("a watch that is %s misses nothing", state)
		}
		if !p.noteDeleted("b", 12) || !p.noteDeleted("a", 13) || p.isFree() {
			t.Errorf("with a watch that is %s the waiter does not ask again", state)
		}
	}
}
