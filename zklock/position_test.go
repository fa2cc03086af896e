package zklock

import "testing"

var queue = []string{"a", "b", "c", "d", "e"}

func TestPositionMovesUp(t *testing.T) {
	p := positionOf(queue, 2)
	if p.gone("b") || p.first { // who gave up
		t.Error("the nearest is gone, and the first still is there, but it is its turn")
	}
	if !p.gone("a") || !p.first {
		t.Error("everybody before it is gone, but it is not its turn")
	}
}

// TestPositionBehindMany: it watches one node, and looks when that is gone.
func TestPositionBehindMany(t *testing.T) {
	p := positionOf(queue, 4)
	if len(p.ahead) != 1 || p.ahead[0] != "d" || p.head != "a" {
		t.Errorf("it waits for %q, and %q has the lock; want the nearest, and the first", p.ahead, p.head)
	}
	if !p.gone("d") || p.first {
		t.Error("the nearest is gone: it has to look whether it is its turn")
	}
}

func TestPositionOfAStranger(t *testing.T) {
	p := positionOf(queue, 1)
	if !p.gone("z") || p.first || len(p.ahead) > 0 {
		t.Error("a node that it did not wait for is gone: what it knows is not right, and it has to look")
	}
}
