package faults

import (
	"strings"
	"testing"
	"time"
)

// tale builds a history by hand. Times are in seconds.
type tale []deed

func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func (s tale) deed(kind, hold string, token uint64, from, to float64) tale {
	return append(s, deed{Kind: kind, Name: "x", Hold: hold, Token: token, From: at(from), To: at(to)})
}

func (s tale) write(token uint64, ok bool, from, to float64) tale {
	return append(s, deed{Kind: wrote, Name: "x", Token: token, OK: ok, From: at(from), To: at(to)})
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		tale tale
		want string // what is violated; empty if nothing
	}{
		{"nothing happened", nil, ""},
		{"one after the other", tale{}.
			deed(acquired, "a", 1, 0, 1).deed(ended, "a", 1, 2, 3).
			deed(acquired, "b", 2, 2.5, 4).deed(ended, "b", 2, 5, 6), ""},
		{"the second has it before the first has ended", tale{}.
			deed(acquired, "a", 1, 0, 1).deed(ended, "a", 1, 4, 5).
			deed(acquired, "b", 2, 2, 3).deed(ended, "b", 2, 6, 7), "one holder at a time"},
		// The first was stopped from 2 on. What it believed then nobody knows; it
		// acted at 2 and found out at 9.
		{"a pause that counts from the last look", tale{}.
			deed(acquired, "a", 1, 0, 1).deed(ended, "a", 1, 2, 9).
			deed(acquired, "b", 2, 3, 4).deed(ended, "b", 2, 5, 6), ""},
		{"a pause that counts from its end", tale{}.
			deed(acquired, "a", 1, 0, 1).deed(ended, "a", 1, 8.9, 9).
			deed(acquired, "b", 2, 3, 4).deed(ended, "b", 2, 5, 6), "one holder at a time"},
		{"a token comes twice", tale{}.
			deed(acquired, "a", 7, 0, 1).deed(ended, "a", 7, 2, 3).
			deed(acquired, "b", 7, 4, 5).deed(ended, "b", 7, 6, 7), "tokens rise"},
		{"a token falls", tale{}.
			deed(acquired, "a", 7, 0, 1).deed(ended, "a", 7, 2, 3).
			deed(acquired, "b", 6, 4, 5).deed(ended, "b", 6, 6, 7), "tokens rise"},
		{"tokens of grants at the same time in any order", tale{}.
			deed(acquired, "a", 7, 0, 5).deed(ended, "a", 7, 1, 6).
			deed(acquired, "b", 6, 0, 5).deed(ended, "b", 6, 1, 6), ""},
		{"a stale write is refused", tale{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, false, 4, 5), ""},
		{"a stale write is taken", tale{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, true, 4, 5), "no stale write"},
		{"a fresh write is refused", tale{}.write(1, true, 0, 1).write(2, false, 2, 3), "no stale write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := violations(test.tale)
			switch {
			case test.want == "" && len(found) > 0:
				t.Errorf("found %q; want nothing", found)
			case test.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], test.want)):
				t.Errorf("found %q; want %q", found, test.want)
			}
		})
	}
}

// Names have nothing to do with each other.
func TestModelsTellNamesApart(t *testing.T) {
	t.Parallel()
	deeds := tale{}.deed(acquired, "a", 1, 0, 1).deed(acquired, "b", 1, 2, 3)
	deeds[1].Name = "y"
	if found := violations(deeds); len(found) > 0 {
		t.Errorf("found %q; want nothing", found)
	}
}

// Whoever had a lock that the store forgot is excused for a while, and no longer.
func TestForgottenLocks(t *testing.T) {
	t.Parallel()
	for end, want := range map[float64]int{3: 0, 20: 1} {
		h := newHistory()
		for _, d := range (tale{}.
			deed(acquired, "a", 1, 0, 1).deed(forgot, "", 0, 1.5, 1.6).deed(acquired, "b", 2, 2, 2.5).
			deed(ended, "a", 1, end-0.1, end).deed(ended, "b", 2, end+1, end+2)) {
			h.add(d)
		}
		if found := violations(h.excused(5 * time.Second)); len(found) != want {
			t.Errorf("a holder that believes %vs after its lock was forgotten: found %q; want %d", end-1.6, found, want)
		}
	}
}

// Whoever is dead does not believe any more, but may have before.
func TestDeadWorkers(t *testing.T) {
	t.Parallel()
	h := newHistory()
	now := monotonic()
	h.add(deed{Kind: acquired, Worker: 1, Name: "x", Hold: "a", Token: 1, From: now, To: now})
	h.died(1)
	h.died(1)
	next := monotonic()
	h.add(deed{Kind: acquired, Worker: 2, Name: "x", Hold: "b", Token: 2, From: next, To: next})
	if found := violations(h.excused(0)); len(found) > 0 || h.count(ended) != 1 {
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
