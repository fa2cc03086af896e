package zklock

import "testing"

var queue = []string{"a", "b", "c", "d", "e"}

func TestPositionMovesUp(t *testing.T) {
	p := positionOf(queue, 2)
	if p.removed("b") || p.first { // a waiter that gave up
		t.Error("the head of the queue is still there, but the position is the first")
	}
	if !p.removed("a") || !p.first {
		t.Error("all nodes ahead are removed, but the position is not the first")
	}
}

// TestPositionBehindMany: behind many nodes a waiter watches the nearest, and asks for its
// position when that is removed.
func TestPositionBehindMany(t *testing.T) {
	p := positionOf(queue, 4)
	if len(p.ahead) != 1 || p.ahead[0] != "d" || p.head != "a" {
		t.Errorf("it waits for %q behind the holder %q; want the nearest node, and the first", p.ahead, p.head)
	}
	if !p.removed("d") || p.first {
		t.Error("after the removal of the nearest node the position must be asked for")
	}
}

// TestPositionForgetsItself: the removal of a node that was not ahead proves that the known
// position is wrong.
func TestPositionForgetsItself(t *testing.T) {
	p := positionOf(queue, 1)
	if !p.removed("z") || p.first || len(p.ahead) > 0 {
		t.Errorf("an unknown node was removed, and the position is %+v; want an unknown one", p)
	}
}
