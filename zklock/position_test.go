package zklock

import (
	"slices"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

var queue = []contender{{node: "a"}, {node: "b"}, {node: "c"}, {node: "d"}, {node: "e"}}

// TestPositionOfMode: contenders wait for those that exclude them, and a reader for the node that a
// downgrade removes.
func TestPositionOfMode(t *testing.T) {
	shared := driver.Mode{Shared: true}
	limit := driver.Mode{Limit: 2}
	queue := []contender{
		{"r1", "read1", shared}, {"w2", "write2", driver.Mode{}}, {"r3", "read3", shared},
		{"_c_x-__WRIT__0000000004", "", driver.Mode{}}, {"w5", "write5", driver.Mode{}},
		{"p6", "", limit}, {"p7", "", limit},
	}
	for i, want := range []position{
		{first: true, decisive: true},
		{ahead: []string{"r1"}, decisive: true},
		{ahead: []string{"write2"}}, // its removal may be a downgrade, or an operator's
		{ahead: []string{"r1", "w2", "r3"}, decisive: true},
		{ahead: []string{"_c_x-__WRIT__0000000004"}}, // a writer of Curator, which may become a reader
		{ahead: []string{"w5"}},
		{ahead: []string{"w5"}},
	} {
		got := positionOf(queue, i)
		same := got.first == want.first && got.decisive == want.decisive && slices.Equal(got.ahead, want.ahead)
		if !same || got.holder != "r1" || got.mode != shared {
			t.Errorf("the position of %s is %+v; want %+v", queue[i].node, got, want)
		}
	}
	if p := positionOf(queue[2:], 2); p.decisive || len(p.ahead) != 2 {
		t.Errorf("behind a writer of Curator the position is %+v; want one that has to be asked for", p)
	}
}

func TestPositionMovesUp(t *testing.T) {
	p := positionOf(queue, 2)
	if p.noteRemoved("b") || p.first { // a waiter that gave up
		t.Error("the head of the queue is still there, but the position is the first")
	}
	if !p.noteRemoved("a") || !p.first {
		t.Error("all nodes ahead are removed, but the position is not the first")
	}
}

// TestPositionBehindMany: behind many nodes a waiter watches the nearest, and asks for its
// position when that is removed.
func TestPositionBehindMany(t *testing.T) {
	p := positionOf(queue, 4)
	if len(p.ahead) != 1 || p.ahead[0] != "d" || p.holder != "a" {
		t.Errorf("it waits for %q behind the holder %q; want the nearest node, and the first", p.ahead, p.holder)
	}
	if !p.noteRemoved("d") || p.first {
		t.Error("after the removal of the nearest node the position must be asked for")
	}
}

// TestPositionForgetsItself: the removal of a node that was not ahead proves that the known
// position is wrong.
func TestPositionForgetsItself(t *testing.T) {
	p := positionOf(queue, 1)
	if !p.noteRemoved("z") || p.first || len(p.ahead) > 0 {
		t.Errorf("an unknown node was removed, and the position is %+v; want an unknown one", p)
	}
}
