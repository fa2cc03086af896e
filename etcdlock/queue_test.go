package etcdlock

import "testing"

// followedPlace is a place behind some keys, seen at revision 10, that a watch keeps up to date.
func followedPlace(complete bool, ahead ...string) place {
	p := newPlace(queueView{own: 10, revision: 10, ahead: ahead, complete: complete})
	p.follow(&queueWatch{from: 10})
	return p
}

func TestPlaceIsFirstWhenAllKeysAheadAreDeleted(t *testing.T) {
	p := followedPlace(true, "b", "a")
	if p.deleted("b", 11) || p.isFirst() { // a waiter that gave up
		t.Error("the place is first although the holder's key exists")
	}
	if p.deleted("c", 12) || p.isFirst() {
		t.Error("the place is first because a key behind it was deleted")
	}
	if !p.deleted("a", 13) || !p.isFirst() {
		t.Error("the place is not first although all keys ahead were deleted")
	}
}

// TestPlaceIgnoresEarlierDeletions: a process that takes a lock again uses the same key as before.
// The deletion of the earlier key may be reported late.
func TestPlaceIgnoresEarlierDeletions(t *testing.T) {
	p := followedPlace(true, "a")
	if p.deleted("a", 10) || p.isFirst() {
		t.Error("the place is first because of a deletion before the server saw the queue")
	}
}

func TestPlaceBehindUnknownKeysAsksAgain(t *testing.T) {
	p := followedPlace(false, "b", "a")
	if p.deleted("a", 11) || !p.deleted("b", 12) {
		t.Error("the waiter has to ask again when the nearest key is deleted, and only then")
	}
	if p.isFirst() {
		t.Error("the place is first although it does not know all keys ahead")
	}
}

// TestUnfollowedPlaceAsksAgain: where the watch may miss deletions, every deletion is a reason to
// ask, and none is proof.
func TestUnfollowedPlaceAsksAgain(t *testing.T) {
	for state, watch := range map[string]*queueWatch{
		"not open yet":                {},
		"open since a later revision": {from: 11},
		"ahead of the answer":         {from: 5, lastDeletion: 11},
	} {
		p := newPlace(queueView{own: 10, revision: 10, ahead: []string{"a"}, complete: true})
		if p.follow(watch) {
			t.Errorf("a watch that is %s misses nothing", state)
		}
		if !p.deleted("b", 12) || !p.deleted("a", 13) || p.isFirst() {
			t.Errorf("with a watch that is %s the waiter does not ask again", state)
		}
	}
}
