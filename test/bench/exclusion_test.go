package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// openToAll is a subject that grants every request.
type openToAll struct{}

func (openToAll) Worker(context.Context, string) (subjects.Worker, error) { return openToAll{}, nil }
func (openToAll) Commands() (uint64, bool)                                { return 0, false }
func (openToAll) Close() error                                            { return nil }
func (openToAll) Lock(context.Context) error                              { return nil }
func (openToAll) Unlock(context.Context) error                            { return nil }

func TestSubjectWithoutExclusionFails(t *testing.T) {
	broken := subjects.Subject{Name: "broken", Open: func(string) (func(context.Context) (subjects.Client, error), error) {
		return func(context.Context) (subjects.Client, error) { return openToAll{}, nil }, nil
	}}
	if err := excludes(t.Context(), broken, t.TempDir()); !errors.Is(err, errNotExclusive) {
		t.Errorf("two clients: got %v, want %v", err, errNotExclusive)
	}
	_, err := handover.run(t.Context(), round{store: subjects.Memory, subject: broken, window: 100 * time.Millisecond})
	if !errors.Is(err, errNotExclusive) {
		t.Errorf("handover: got %v, want %v", err, errNotExclusive)
	}
}

func TestOccupancyDetectsSecondHolder(t *testing.T) {
	var r occupancy
	r.enter()
	r.leave()
	r.enter()
	if err := r.check(); err != nil {
		t.Fatalf("one at a time: %v", err)
	}
	var group sync.WaitGroup
	group.Go(r.enter)
	group.Wait()
	if err := r.check(); !errors.Is(err, errNotExclusive) {
		t.Errorf("two inside: got %v, want %v", err, errNotExclusive)
	}
}

func TestEvaluateMergesReports(t *testing.T) {
	const ms = time.Millisecond
	s := span{Start: 0, Measured: 10 * ms, End: 20 * ms}
	reports := []report{
		{Acquisitions: []acquisition{{0, true, 9 * ms, 10 * ms, 12 * ms, 12 * ms, 0}, {0, true, 14 * ms, 21 * ms, 22 * ms, 22 * ms, 0}}, Commands: 5, Counts: true},
		{Acquisitions: []acquisition{{1, true, 9 * ms, 13 * ms, 15 * ms, 16 * ms, 0}}, Commands: 7, Counts: true},
	}
	f, err := evaluate(reports, s, handoverPlan)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range (figures{pairsPerS: 200, handoverP50: 1000, handoversPerS: 100, perPair: 4, p99Wait: 4}) {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	reports[1].Acquisitions[0].Granted = 11 * ms // before the release of the other process
	if _, err := evaluate(reports, s, handoverPlan); !errors.Is(err, errNotExclusive) {
		t.Errorf("overlap: got %v, want %v", err, errNotExclusive)
	}
}

// The cases readers and permits find holders that should have excluded each other.
func TestModesAreChecked(t *testing.T) {
	ms := time.Millisecond
	hold := func(from, to int, exclusive bool) acquisition {
		return acquisition{Exclusive: exclusive, Granted: time.Duration(from) * ms, Released: time.Duration(to) * ms}
	}
	s := span{0, 0, time.Second}
	two := permitsPlan
	two.Limit = 2
	for _, test := range []struct {
		name   string
		plan   subjects.Plan
		holds  []acquisition
		broken bool
	}{
		{"readers together", readersPlan, []acquisition{hold(0, 3, false), hold(1, 2, false), hold(3, 4, true)}, false},
		{"a reader beside a writer", readersPlan, []acquisition{hold(0, 3, true), hold(1, 2, false)}, true},
		{"a writer beside the first of two readers", readersPlan, []acquisition{hold(0, 9, false), hold(1, 2, false), hold(3, 4, true)}, true},
		{"two writers", readersPlan, []acquisition{hold(0, 3, true), hold(2, 4, true)}, true},
		{"as many as the limit", two, []acquisition{hold(0, 3, true), hold(1, 2, true), hold(2, 4, true)}, false},
		{"one more than the limit", two, []acquisition{hold(0, 3, true), hold(1, 3, true), hold(2, 4, true)}, true},
	} {
		if _, err := evaluateModes([]report{{Acquisitions: test.holds}}, s, test.plan); errors.Is(err, errNotExclusive) != test.broken {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
