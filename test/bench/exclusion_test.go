package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

func TestSubjectWithoutExclusionFails(t *testing.T) {
	grant := func(context.Context) error { return nil }
	client := &subjects.Client{
		Worker: func(context.Context, subjects.Want) (subjects.Worker, error) {
			return subjects.Worker{Lock: grant, Unlock: grant}, nil
		},
		Close: func() error { return nil },
	}
	r := round{store: subjects.Memory, window: 100 * time.Millisecond, subject: subjects.Subject{
		Name: "broken", Open: func(context.Context, subjects.Place) (*subjects.Client, error) { return client, nil },
	}}
	_, handover := runHandover(t.Context(), r)
	var occupancy occupancy
	occupancy.enter()
	occupancy.leave()
	occupancy.enter()
	if err := occupancy.check(); err != nil {
		t.Errorf("one holder at a time: %v", err)
	}
	occupancy.enter()
	for name, err := range map[string]error{"two clients": r.excludes(t.Context()), "handover": handover, "crowd": occupancy.check()} {
		if !errors.Is(err, errNotExclusive) {
			t.Errorf("%s: got %v, want %v", name, err, errNotExclusive)
		}
	}
}

func TestEvaluateMergesReports(t *testing.T) {
	const ms = time.Millisecond
	reports := []report{
		{Acquisitions: []acquisition{{0, true, 9 * ms, 10 * ms, 12 * ms, 12 * ms, 0}, {0, true, 14 * ms, 21 * ms, 22 * ms, 22 * ms, 0}}, Commands: 5, Counts: true},
		{Acquisitions: []acquisition{{1, true, 9 * ms, 13 * ms, 15 * ms, 16 * ms, 0}}, Commands: 7, Counts: true},
	}
	f, err := evaluate(reports, span{0, 10 * ms, 20 * ms}, handoverPlan)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range (figures{pairsPerS: 200, handoverP50: 1000, handoversPerS: 100, perPair: 4, p99Wait: 4}) {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
}

// The cases with processes find holders that should have excluded each other.
func TestHoldersAreChecked(t *testing.T) {
	hold := func(from, to time.Duration, exclusive bool) acquisition {
		return acquisition{Exclusive: exclusive, Granted: from, Released: to}
	}
	two := permitsPlan
	two.Limit = 2
	for _, test := range []struct {
		name   string
		plan   subjects.Plan
		holds  []acquisition
		broken bool
	}{
		{"one after the other", handoverPlan, []acquisition{hold(3, 4, true), hold(0, 3, true)}, false},
		{"before the release", handoverPlan, []acquisition{hold(0, 3, true), hold(2, 4, true)}, true},
		{"readers together", readersPlan, []acquisition{hold(0, 3, false), hold(1, 2, false), hold(3, 4, true)}, false},
		{"a reader beside a writer", readersPlan, []acquisition{hold(0, 3, true), hold(1, 2, false)}, true},
		{"a writer beside the first of two readers", readersPlan, []acquisition{hold(0, 9, false), hold(1, 2, false), hold(3, 4, true)}, true},
		{"two writers", readersPlan, []acquisition{hold(0, 3, true), hold(2, 4, true)}, true},
		{"as many as the limit", two, []acquisition{hold(0, 3, true), hold(1, 2, true), hold(2, 4, true)}, false},
		{"one more than the limit", two, []acquisition{hold(0, 3, true), hold(1, 3, true), hold(2, 4, true)}, true},
	} {
		_, err := evaluate([]report{{Acquisitions: test.holds}}, span{0, 0, time.Second}, test.plan)
		if errors.Is(err, errNotExclusive) != test.broken || !test.broken && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
