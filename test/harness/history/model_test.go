package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// eventList builds a history by hand. Times are in seconds.
type eventList []Event

func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func (s eventList) add(kind, hold string, token uint64, from, to float64) eventList {
	return append(s, Event{Kind: kind, Name: "x", Hold: hold, Token: token, From: at(from), To: at(to)})
}

func (s eventList) write(token uint64, ok bool, from, to float64) eventList {
	return append(s, Event{Kind: Wrote, Name: "x", Token: token, OK: ok, From: at(from), To: at(to)})
}

// in gives the events of a hold a mode.
func (s eventList) in(mode driver.Mode, holds ...string) eventList {
	for i := range s {
		if slices.Contains(holds, s[i].Hold) {
			s[i].Mode = mode
		}
	}
	return s
}

func TestModels(t *testing.T) {
	shared, limit := driver.Mode{Shared: true}, driver.Mode{Limit: 2}
	two := eventList{}.
		add(Acquired, "a", 1, 0, 1).add(Acquired, "b", 2, 2, 3).
		add(Ended, "a", 1, 4, 5).add(Ended, "b", 2, 6, 7)
	three := slices.Concat(two, eventList{}.add(Acquired, "c", 3, 3.2, 3.5).add(Ended, "c", 3, 8, 9))
	t.Parallel()
	for _, test := range []struct {
		name      string
		eventList eventList
		want      string // the violated model; empty for none
	}{
		{"nothing happened", nil, ""},
		{"one after the other", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 2, 3).
			add(Acquired, "b", 2, 2.5, 4).add(Ended, "b", 2, 5, 6), ""},
		{"the second starts before the first has ended", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 4, 5).
			add(Acquired, "b", 2, 2, 3).add(Ended, "b", 2, 6, 7), "one holder at a time"},
		// The first holder was paused from 2 to 9. It trusted its lease at 2 and
		// found the loss at 9. The time between the two does not count.
		{"a pause that counts from the last check", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 2, 9).
			add(Acquired, "b", 2, 3, 4).add(Ended, "b", 2, 5, 6), ""},
		{"a pause that counts from its end", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 8.9, 9).
			add(Acquired, "b", 2, 3, 4).add(Ended, "b", 2, 5, 6), "one holder at a time"},
		{"a repeated token", eventList{}.
			add(Acquired, "a", 7, 0, 1).add(Ended, "a", 7, 2, 3).
			add(Acquired, "b", 7, 4, 5).add(Ended, "b", 7, 6, 7), "tokens rise"},
		{"a smaller token", eventList{}.
			add(Acquired, "a", 7, 0, 1).add(Ended, "a", 7, 2, 3).
			add(Acquired, "b", 6, 4, 5).add(Ended, "b", 6, 6, 7), "tokens rise"},
		{"tokens of concurrent grants in any order", eventList{}.
			add(Acquired, "a", 7, 0, 5).add(Ended, "a", 7, 1, 6).
			add(Acquired, "b", 6, 0, 5).add(Ended, "b", 6, 1, 6), ""},
		{"two readers", slices.Clone(two).in(shared, "a", "b"), ""},
		{"a reader beside a writer", slices.Clone(two).in(shared, "b"), "one writer or readers"},
		{"a writer beside a reader", slices.Clone(two).in(shared, "a"), "one writer or readers"},
		{"two writers of a name with readers", slices.Clone(three).in(shared, "c"), "one writer or readers"},
		{"a reader that died may have gone before the writer came", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 0, 9).
			add(Acquired, "b", 2, 2, 3).add(Ended, "b", 2, 4, 5).in(shared, "a"), ""},
		{"a reader that is alive after the writer came", eventList{}.
			add(Acquired, "a", 1, 0, 1).add(Ended, "a", 1, 8, 9).
			add(Acquired, "b", 2, 2, 3).add(Ended, "b", 2, 4, 5).in(shared, "a"), "one writer or readers"},
		{"a writer with a smaller token than a reader before", eventList{}.
			add(Acquired, "a", 7, 0, 1).add(Ended, "a", 7, 2, 3).
			add(Acquired, "b", 6, 4, 5).add(Ended, "b", 6, 6, 7).in(shared, "a"), "tokens rise"},
		{"readers with tokens in any order", eventList{}.
			add(Acquired, "a", 7, 0, 1).add(Ended, "a", 7, 2, 3).
			add(Acquired, "b", 6, 4, 5).add(Ended, "b", 6, 6, 7).in(shared, "a", "b"), ""},
		{"as many holders as the limit", slices.Clone(two).in(limit, "a", "b"), ""},
		{"one more holder than the limit", slices.Clone(three).in(limit, "a", "b", "c"), "no more holders than the limit"},
		{"a permit after another was released", slices.Concat(two, eventList{}.
			add(Acquired, "c", 3, 4.5, 6).add(Ended, "c", 3, 8, 9)).in(limit, "a", "b", "c"), ""},
		{"a rejected stale write", eventList{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, false, 4, 5), ""},
		{"an accepted stale write", eventList{}.write(1, true, 0, 1).write(2, true, 2, 3).write(1, true, 4, 5), "no stale write"},
		{"a rejected fresh write", eventList{}.write(1, true, 0, 1).write(2, false, 2, 3), "no stale write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found := Violations(test.eventList)
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
	events := eventList{}.add(Acquired, "a", 1, 0, 1).add(Acquired, "b", 1, 2, 3)
	events[1].Name = "y"
	if found := Violations(events); len(found) > 0 {
		t.Errorf("found %q; want nothing", found)
	}
}
