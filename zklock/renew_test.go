package zklock

import (
	"errors"
	"testing"
)

// TestWatchedNodeHasNoOldError: the first round of a renewal failed, and another call watches the
// node before the second. The error of the first round does not stay.
func TestWatchedNodeHasNoOldError(t *testing.T) {
	s := &Store{}
	s.connections.Store(2)
	errs := []error{errors.New("the first connection broke")}
	s.watchOwnAll([]*hold{{watchedBy: 2}}, errs)
	if errs[0] != nil {
		t.Errorf("a node that is watched: %v; want no error", errs[0])
	}
}

// TestLostNodeIsNotWatched: the node of a hold is lost while Renew is about to watch it. The store
// watches nothing in its place.
func TestLostNodeIsNotWatched(t *testing.T) {
	s := &Store{watches: make(map[string]*watchedNode)}
	if err := s.watchOwn(&hold{container: "/n"}); err != nil {
		t.Errorf("watching a node that was lost: %v; want no error", err)
	}
	if len(s.watches) > 0 {
		t.Errorf("the watched nodes are %v; want none", s.watches)
	}
}
