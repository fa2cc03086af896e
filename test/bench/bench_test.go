package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

func TestMain(m *testing.M) {
	if os.Getenv(participantVariable) != "" { // a process of handover
		main()
		return
	}
	os.Exit(m.Run())
}

// The measurements are too short to mean anything, but complete.
func TestEveryCaseRuns(t *testing.T) {
	numberOfWaiters = measurable
	selected, err := selection("", true)
	if err != nil {
		t.Fatal(err)
	}
	// memory has no case exec, nor have other servers than those of redis and etcd;
	// readers and permits need modes, which memcached has not.
	if want := 8*6 + 3 + 7*2 + 3*5; len(selected) != want {
		t.Fatalf("%d cases, want %d", len(selected), want)
	}
	want := make(map[string]int) // number of results: one for each subject, and for each point of a curve
	var shortened []job
	for _, j := range selected {
		if j.store.Serve != nil && j.kind.name != "solo" && (j.store.Name != "redis" || j.kind.name != "handover" && j.kind.name != "readers") {
			continue // the other cases are the same for all stores
		}
		if j.kind.points != nil && j.store.Name == "sqlite" && j.kind.name != "grow-processes" {
			continue // as in memory, which has no processes
		}
		j.store.Held = min(j.store.Held, 1000)
		j.kind.rounds = 1
		j.kind.points = j.kind.points[:min(len(j.kind.points), 2)]
		// Foreign programs need more than the tests install; see
		// interop/curator/run and interop/redisson/run.
		j.store.Subjects = slices.DeleteFunc(slices.Clone(j.store.Subjects), func(s subjects.Subject) bool { return s.Program != nil })
		shortened = append(shortened, j)
		want[j.name()] = len(j.subjects()) * max(1, len(j.kind.points))
	}
	results, err := runAll(t.Context(), shortened, 20*time.Millisecond, t.Output())
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		want[r.kase]--
		if rate, ok := r.figures[pairsPerS]; ok && rate <= 0 {
			t.Errorf("%s: %s reached %v pairs a second", r.kase, r.subject, rate)
		}
		if sent, ok := r.figures[perPair]; ok && sent <= 0 { // few where a process hands the lock over
			t.Errorf("%s: %s sent %v commands a pair", r.kase, r.subject, sent)
		}
		if r.subject == "dlock" {
			checkFigures(t, r)
		}
	}
	for name, missing := range want {
		if missing != 0 {
			t.Errorf("%s has %d results too few", name, missing)
		}
	}
	if f := results.of("sqlite", "exec"); len(f) != 3 || f[0].figures[aboveBare] != 0 || f[1].figures[aboveBare] <= 0 {
		t.Errorf("the bare command takes more than itself, or dlock exec does not take more: %v", f)
	}
}

// checkFigures checks what dlock promises in a case.
func checkFigures(t *testing.T, r result) {
	t.Helper()
	_, kind, _ := strings.Cut(r.kase, "/")
	f := r.figures
	switch {
	case kind == "waiters" && f[storeContenders] != 1:
		t.Errorf("%s: the store saw %v contenders for %d waiters of one process, want 1", r.kase, f[storeContenders], numberOfWaiters)
	case kind == "grow-readers" && (f[storeHolders] < 1 || f[storeHolders] > 50):
		t.Errorf("%s: the store listed %v holders for %v readers of one process, want a few", r.kase, f[storeHolders], f[point])
	case kind == "held" && f[renewalsPerS] == 0:
		t.Errorf("%s: no lock was renewed", r.kase)
	}
}

// What cannot run does not hide the figures of the others: servers, a subject, and a
// subject that needs what is not installed.
func TestFailuresHideNothing(t *testing.T) {
	broken := job{subjects.Store{Name: "broken", Serve: func(context.Context) (*subjects.Servers, error) {
		return nil, errors.New("no such program")
	}}, kinds[0]}
	sound := job{subjects.Memory, kinds[0]}
	sound.kind.rounds = 2
	sound.store.Subjects = append([]subjects.Subject{
		{Name: "unable", Open: func(context.Context, subjects.Place) (*subjects.Client, error) {
			return nil, errors.New("no such server")
		}},
		{Name: "absent", Missing: func() error { return errors.New("not installed") }},
	}, subjects.Memory.Subjects...)
	var lines bytes.Buffer
	results, err := runAll(t.Context(), []job{broken, sound}, 20*time.Millisecond, &lines)
	for _, want := range []string{"broken/solo: no such program", "unable: no such server"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the run returns %v, want %s", err, want)
		}
	}
	failures := map[string]string{"every subject": "no such program", "unable": "no such server"}
	if got, want := len(results), 1+len(sound.subjects())-1; got != want {
		t.Errorf("%d results, want %d: one for the broken store, and one for each subject that is not absent", got, want)
	}
	for _, r := range results {
		if r.failure != failures[r.subject] || (r.failure == "") != (r.figures[pairsPerS] > 0) {
			t.Errorf("%s: failure %q and %v pairs a second", r.subject, r.failure, r.figures[pairsPerS])
		}
	}
	if !strings.Contains(lines.String(), `"failure":"no such program"`) {
		t.Errorf("the file does not name the failure: %s", lines.String())
	}
}

func TestSelection(t *testing.T) {
	for _, test := range []struct {
		only, want string
		grow       bool
	}{
		{"memory/solo", "memory/solo", false},
		{"sqlite/held,memory/solo", "memory/solo sqlite/held", false},
		{"memory", "memory/solo memory/many memory/handover memory/crowd memory/readers memory/permits memory/waiters memory/held", false},
		{"redis/grow-crowd", "redis/grow-crowd", false},
		{"exec,redis/solo", "sqlite/exec redis/solo redis/exec etcd/exec", false},
		{"etcd,memory/solo", "memory/solo etcd/solo etcd/many etcd/handover etcd/crowd etcd/readers etcd/permits etcd/waiters etcd/held etcd/exec " +
			"etcd/grow-crowd etcd/grow-processes etcd/grow-readers etcd/grow-waiters etcd/grow-held", true},
	} {
		jobs, err := selection(test.only, test.grow)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, j := range jobs {
			names = append(names, j.name())
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("--only %s selects %s, want %s", test.only, got, test.want)
		}
	}
	if _, err := selection("memory,oracle", false); err == nil || !strings.Contains(err.Error(), "memory, sqlite, redis") {
		t.Errorf("an unknown store gives %v, want the known ones", err)
	}
}
