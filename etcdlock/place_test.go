package etcdlock

import (
	"testing"
)

// asked is a place behind some keys, at revision 10, that a watch follows.
func asked(all bool, ahead ...string) place {
	p := newPlace(answer{revision: 10, seen: 10, ahead: ahead, all: all})
	p.followed(&topic{from: 10})
	return p
}

func TestPlaceMovesUp(t *testing.T) {
	p := asked(true, "b", "a")
	if p.deleted("b", 11) || p.isFirst() { // who gave up
		t.Error("the nearest is gone, and the first still is there, but it is its turn")
	}
	if p.deleted("c", 12) || p.isFirst() {
		t.Error("it is its turn, because somebody behind it has gone")
	}
	if !p.deleted("a", 13) || !p.isFirst() {
		t.Error("everybody before it is gone, but it is not its turn")
	}
}

// TestPlaceIgnoresThePast: a process that takes a lock again has the same key as
// before, whose deletion may be told late.
func TestPlaceIgnoresThePast(t *testing.T) {
	p := asked(true, "a")
	if p.deleted("a", 10) || p.isFirst() {
		t.Error("it is its turn, because of a key that was deleted before it asked")
	}
}

func TestPlaceBehindMany(t *testing.T) {
	p := asked(false, "b", "a")
	if p.deleted("a", 11) || !p.deleted("b", 12) {
		t.Error("it asks again when the nearest is gone, and only then")
	}
	if p.isFirst() {
		t.Error("it is its turn, though there are more before it than it knows")
	}
}

// TestPlaceNotFollowed: where deletions may be missed, every one that is seen is a
// reason to ask, and none is proof.
func TestPlaceNotFollowed(t *testing.T) {
	for what, watch := range map[string]*topic{
		"not open yet":                {},
		"open since a later revision": {from: 11},
		"ahead of the answer":         {from: 5, seen: 11},
	} {
		p := newPlace(answer{revision: 10, seen: 10, ahead: []string{"a"}, all: true})
		if p.followed(watch) {
			t.Errorf("a watch that is %s misses nothing", what)
		}
		if !p.deleted("b", 12) || !p.deleted("a", 13) || p.isFirst() {
			t.Errorf("with a watch that is %s it does not ask again", what)
		}
	}
}
