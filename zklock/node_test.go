package zklock

import (
	"slices"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestQueueIsOrderedAsCuratorDoes(t *testing.T) {
	children := []string{
		"config", // of another program
		"_c_11111111-2222-3333-4444-555555555555-lock-0000000012",
		"_c_ffffffff-2222-3333-4444-555555555555-lock-0000000003",
		"_c_0123456789abcdef0123456789abcdef-lock-0000000007", // of go-zookeeper
		"_c_aa-lock-bb-lock-0000000005",
		unfairNode,
		anchorName("11111111-2222-3333-4444-555555555555"),
		"leases", "locks",
		"block-1", "deadlock-info", "deadlock-0", // of another program
	}
	want := []string{children[5], children[2], children[4], children[3], children[1]}
	var got []string
	for _, c := range queueOf(children) {
		got = append(got, c.node)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the queue is %q; want %q", got, want)
	}
}

// TestQueueKnowsModes: the companion of a node tells its mode, the name of a permit its limit, and
// a node of Curator's read-write lock is a contender of its own.
func TestQueueKnowsModes(t *testing.T) {
	id := func(n string) string { return "_c_11111111-2222-3333-4444-55555555555" + n + "-" }
	shared := driver.Mode{Shared: true}
	children := []string{
		id("5") + "__READ__0000000006", // of Curator, and was a writer
		id("4") + "__WRIT__0000000006",
		id("1") + "lock-0000000001", id("1") + "__READ__0000000002",
		id("2") + "lock-0000000003", id("2") + "__WRIT__0000000004",
		id("3") + "lock-0000000005", // an InterProcessMutex
		id("6") + "4-lock-0000000008",
		"__READ__0000000009", "__READ__0000000010", // without IDs
	}
	want := []contender{
		{children[2], children[3], shared},
		{children[4], children[5], driver.Mode{}},
		{children[6], "", driver.Mode{}},
		{children[1], "", driver.Mode{}},
		{children[0], "", shared},
		{children[7], "", driver.Mode{Limit: 4}},
		{children[8], "", shared},
		{children[9], "", shared},
	}
	if got := queueOf(children); !slices.Equal(got, want) {
		t.Errorf("the queue is %+v; want %+v", got, want)
	}
}

func TestSequenceNumber(t *testing.T) {
	for node, want := range map[string]int64{
		"_c_x-lock-0000000012": 12, "_c_x-lock-2147483647": lastNumber, "_c_x-lock--2147483648": -1 << 31,
	} {
		if got, ok := number(node); !ok || got != want {
			t.Errorf("number(%q) = %d, %v; want %d", node, got, ok, want)
		}
	}
	for _, node := range []string{"lock-", "config", "lock-x"} {
		if got, ok := number(node); ok {
			t.Errorf("number(%q) = %d; want none", node, got)
		}
	}
}

func TestHasUniqueNumber(t *testing.T) {
	for node, want := range map[string]bool{
		"_c_x-lock-0000000000": true, "_c_x-lock-2147483646": true, unfairNode: true,
		"_c_x-lock-2147483647": false, "_c_x-lock--2147483648": false, "lock-": false,
	} {
		if got := hasUniqueNumber(node); got != want {
			t.Errorf("hasUniqueNumber(%q) = %v; want %v", node, got, want)
		}
	}
}

func TestContentSurvivesEncoding(t *testing.T) {
	want := content{Holder: driver.Holder{Host: "h", PID: 1, Program: "p", Note: "n"}, ID: "x", TTL: 7}
	if got := decode(want.encode()); got != want {
		t.Errorf("decode(encode()) = %+v; want %+v", got, want)
	}
	if got := decode([]byte("192.168.0.7")); got.Note != "192.168.0.7" {
		t.Errorf("decode of Curator's data = %+v; want them as the note", got)
	}
	if a, b := newID(), newID(); a == b || len(a) != 36 {
		t.Errorf("newID returned %s and %s; want two UUIDs", a, b)
	}
}
