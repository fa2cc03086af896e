package faults

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/history"
)

// The holder of a deleted lock is excused for the allowance, and no longer.
func TestDeletedLockExcusesItsHolder(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
	for end, want := range map[float64]int{3: 0, 20: 1} {
		h := newRecorder()
		for _, d := range []history.Event{
			{Kind: history.Acquired, Hold: "a", Token: 1, From: at(0), To: at(1)},
			{Kind: history.Deleted, From: at(1.5), To: at(1.6)},
			{Kind: history.Acquired, Hold: "b", Token: 2, From: at(2), To: at(2.5)},
			{Kind: history.Ended, Hold: "a", Token: 1, From: at(end - 0.1), To: at(end)},
			{Kind: history.Ended, Hold: "b", Token: 2, From: at(end + 1), To: at(end + 2)},
		} {
			h.add(d)
		}
		if found := history.Violations(h.excuseDeletions(5 * time.Second)); len(found) != want {
			t.Errorf("a holder that trusts its lease %vs after its lock was deleted: found %q; want %d", end-1.6, found, want)
		}
	}
}

// The hold of a dead worker may have ended at any time before its death.
func TestDeathEndsTheHold(t *testing.T) {
	t.Parallel()
	h := newRecorder()
	now := history.Now()
	h.add(history.Event{Kind: history.Acquired, Worker: 1, Name: "x", Hold: "a", Token: 1, From: now, To: now})
	h.died(1)
	h.died(1)
	next := history.Now()
	h.add(history.Event{Kind: history.Acquired, Worker: 2, Name: "x", Hold: "b", Token: 2, From: next, To: next})
	if found := history.Violations(h.excuseDeletions(0)); len(found) > 0 || h.count(history.Ended) != 1 {
		t.Errorf("found %q after %d ends; want nothing after one", found, h.count(history.Ended))
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for text, want := range map[string]int{
		"":                            0,
		"*3 42 30000 1800003600":      0, // an hour later
		"at 1800000001!":              1,
		"1800000001000 and again":     1,
		"x1800000001000000y":          1,
		"1800000001000000000":         1,
		"99999999999999999999":        0,
		"1799996400000000 1799999999": 1,
	} {
		if got := times([]byte(text), now, now); len(got) != want {
			t.Errorf("times in %q: %q; want %d", text, got, want)
		}
	}
}

func TestTimesAreFoundInBinary(t *testing.T) {
	// Fixed: some times are found in their own bytes twice.
	now := time.Date(2026, time.March, 1, 12, 30, 15, 123456789, time.UTC)
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, n := range []int64{now.UnixMilli(), now.UnixMicro(), now.UnixNano()} {
			text := append(order.AppendUint64([]byte("SELECT \x00"), uint64(n)), "and more"...)
			if found := binaryTimes(text, now, now); len(found) != 1 {
				t.Errorf("%d as %v: found %q", n, order, found)
			}
			if found := binaryTimes(text, now.Add(time.Hour), now.Add(time.Hour)); len(found) != 0 {
				t.Errorf("%d as %v: found %q an hour later", n, order, found)
			}
		}
	}
	if found := binaryTimes([]byte("short"), now, now); found != nil {
		t.Errorf("found %q", found)
	}
}
