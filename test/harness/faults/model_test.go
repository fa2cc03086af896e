package faults

import (
	"strings"
	"testing"
	"time"
)

// eventList builds a history by hand. Times are in seconds.
type eventList []event

func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func (s eventList) add(kind, hold string, token uint64, from, to float64) eventList {
	return append(s, event{Kind: kind, Name: "x", Hold: hold, Token: token, From: at(from), To: at(to)})
}

func (s eventList) write(token uint64, ok bool, from, to float64) eventList {
	return append(s, event{Kind: wrote, Name: "x", Token: token, OK: ok, From: at(from), To: at(to)})
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		eventList eventList
		want      string // the violated model; empty for none
	}{
		{"nothing happened", nil, ""},
		{"one after the other", eventList{}.
			add(acquired, "a", 1, 0, 1).add(ended, "a", 1, 2, 3).
			add(acquired, "b", 2, 2.5, 4).add(ended, "b", 2, 5, 6), ""},
		{"the second starts before the first has ended", eventList{}.
			add(acquired, "a", 1, 0, 1).add(ended, "a", 1, 4, 5).
			add(acquired, "b", 2, 2, 3).add(ended, "b", 2, 6, 7), "one holder at a time"},
		// The first holder was paused from 2 to 9. It trusted its lease at 2 and
		// found the loss at 9. The time between the two does not count.
		{"a pause that counts from the last check", eventList{}.
			add(acquired, "a", 1, 0, 1).add(ended, "a", 1, 2, 9).
			add(acquired, "b", 2, 3, 4).add(ended, "b", 2, 5, 6), ""},
		{"a pause that counts from its end", eventList{}.
			add(acquired, "a", 1, 0, 1).add(ended, "a", 1, 8.9, 9).
			add(acquired, "b", 2, 3, 4).add(ended, "b", 2, 5, 6), "one holder at a time"},
		{"a repeated token", eventList{}.
			add(acquired, "a", 7, 0, 1).add(ended, "a", 7, 2, 3).
			add(acquired, "b", 7, 4, 5).add(ended, "b", 7, 6, 7), "tokens rise"},
		{"a smaller token", eventList{}.
			add(acquired, "a", 7, 0, 1).add(ended, "a", 7, 2, 3).
			add(acquired, "b", 6, 4, 5).add(ended, "b", 6, 6, 7), "tokens rise"},
		{"tokens of concurrent grants in any order", eventList{}.
			add(acquired, "a", 7, 0, 5).add(ended, "a", 7, 1, 6).
			add(acquired, "b", 6, 0, 5).add(ended, "b", 6, 1, 6), ""},
		{"a rejected stale write", eventList{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, false, 4, 5), ""},
		{"an accepted stale write", eventList{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, true, 4, 5), "no stale write"},
		{"a rejected fresh write", eventList{}.write(1, true, 0, 1).write(2, false, 2, 3), "no stale write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := violations(test.eventList)
			switch {
			case test.want == "" && len(found) > 0:
				t.Errorf("found %q; want nothing", found)
			case test.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], test.want)):
				t.Errorf("found %q; want %q", found, test.want)
			}
		})
	}
}

// Events on different names are independent.
func TestModelsSeparateNames(t *testing.T) {
	t.Parallel()
	events := eventList{}.add(acquired, "a", 1, 0, 1).add(acquired, "b", 1, 2, 3)
	events[1].Name = "y"
	if found := violations(events); len(found) > 0 {
		t.Errorf("found %q; want nothing", found)
	}
}

// The holder of a deleted lock is excused for the allowance, and no longer.
func TestDeletedLockExcusesItsHolder(t *testing.T) {
	t.Parallel()
	for end, want := range map[float64]int{3: 0, 20: 1} {
		h := newHistory()
		for _, d := range (eventList{}.
			add(acquired, "a", 1, 0, 1).add(deleted, "", 0, 1.5, 1.6).add(acquired, "b", 2, 2, 2.5).
			add(ended, "a", 1, end-0.1, end).add(ended, "b", 2, end+1, end+2)) {
			h.add(d)
		}
		if found := violations(h.excuseDeletions(5 * time.Second)); len(found) != want {
			t.Errorf("a holder that trusts its lease %vs after its lock was deleted: found %q; want %d", end-1.6, found, want)
		}
	}
}

// The hold of a dead worker may have ended at any time before its death.
func TestDeathEndsTheHold(t *testing.T) {
	t.Parallel()
	h := newHistory()
	now := monotonic()
	h.add(event{Kind: acquired, Worker: 1, Name: "x", Hold: "a", Token: 1, From: now, To: now})
	h.died(1)
	h.died(1)
	next := monotonic()
	h.add(event{Kind: acquired, Worker: 2, Name: "x", Hold: "b", Token: 2, From: next, To: next})
	if found := violations(h.excuseDeletions(0)); len(found) > 0 || h.count(ended) != 1 {
		t.Errorf("found %q after %d ends; want nothing after one", found, h.count(ended))
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
