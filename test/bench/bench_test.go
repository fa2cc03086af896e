package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	// memory has no case exec, nor have other servers than those of redis and etcd.
	want := len(subjects.Stores)*(len(kinds)-3) + 3 + len(growthStores)*len(growth)
	for _, s := range subjects.Stores {
		if slices.ContainsFunc(s.Subjects, func(s subjects.Subject) bool { return s.Limits }) {
			want += 2 // readers and permits
		}
	}
	if len(selected) != want {
		t.Fatalf("%d cases, want %d", len(selected), want)
	}
	var venue venue // the cases of a store share its servers
	defer func() {
		if err := errors.Join(venue.close(), subjects.RemoveCommand()); err != nil {
			t.Error(err)
		}
	}()
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
		j.store.Subjects = slices.DeleteFunc(slices.Clone(j.store.Subjects), func(s subjects.Subject) bool { return s.Foreign != nil })
		t.Run(j.name(), func(t *testing.T) { runCase(t, &venue, j) })
	}
}

func runCase(t *testing.T, venue *venue, j job) {
	results, err := venue.run(t.Context(), j, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if wanted := len(j.subjects()) * max(1, len(j.kind.points)); len(results) != wanted {
		t.Errorf("%d results, want %d: one for each subject, and for each point of a curve", len(results), wanted)
	}
	for _, r := range results {
		if rate, ok := r.figures[pairsPerS]; ok && rate <= 0 {
			t.Errorf("%s reached %v pairs a second", r.subject, rate)
		}
		if sent, ok := r.figures[perPair]; ok && sent <= 0 { // few where a process hands the lock over
			t.Errorf("%s sent %v commands a pair", r.subject, sent)
		}
	}
	switch f := results[0].figures; j.kind.name {
	case "waiters":
		if got := f[storeContenders]; got != 1 {
			t.Errorf("the store saw %v contenders for %d waiters of one process, want 1", got, numberOfWaiters)
		}
	case "grow-readers":
		if got := results[1].figures[storeHolders]; got < 1 || got > 50 {
			t.Errorf("the store listed %v holders for 100 readers of one process, want a few", got)
		}
	case "held":
		if f[renewalsPerS] == 0 {
			t.Error("no lock was renewed")
		}
	case "exec":
		if f[aboveBare] != 0 || results[1].figures[aboveBare] <= 0 {
			t.Errorf("the bare command takes %v ms more than itself, and dlock exec %v ms more, want 0 and some", f[aboveBare], results[1].figures[aboveBare])
		}
	}
}

// A subject that fails does not hide the figures of the others.
func TestFailedSubjectIsLeftOut(t *testing.T) {
	unable := subjects.Subject{Name: "unable", Open: func(string) (func(context.Context) (subjects.Client, error), error) {
		return nil, errors.New("no such server")
	}}
	j := job{subjects.Store{Name: "memory", Subjects: append([]subjects.Subject{unable}, subjects.Memory.Subjects...)}, solo}
	j.kind.rounds = 2
	results, err := j.run(t.Context(), nil, 20*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "unable: no such server") {
		t.Errorf("the run returns %v, want the failure", err)
	}
	if got, want := len(results), len(j.subjects()); got != want {
		t.Fatalf("%d results, want one for each of %d subjects", got, want)
	}
	for _, r := range results {
		if failed := r.failure != ""; failed != (r.subject == "unable") || failed == (r.figures[pairsPerS] > 0) {
			t.Errorf("%s: failure %q and %v pairs a second", r.subject, r.failure, r.figures[pairsPerS])
		}
	}
}

func TestCaseWithoutServersIsReported(t *testing.T) {
	broken := job{subjects.Store{Name: "broken", Serve: func(context.Context) (subjects.Served, error) {
		return nil, errors.New("no such program")
	}}, solo}
	var lines bytes.Buffer
	sound := job{subjects.Memory, crowd}
	results, err := runAll(t.Context(), []job{broken, sound}, 20*time.Millisecond, &lines)
	if err == nil || !strings.Contains(err.Error(), "broken/solo: no such program") {
		t.Errorf("the run returns %v, want the failure", err)
	}
	if want := 1 + len(sound.subjects()); len(results) != want || results[0].failure != "no such program" {
		t.Errorf("the results are %+v, want %d that begin with the failure", results, want)
	}
	if !strings.Contains(lines.String(), `"failure":"no such program"`) {
		t.Errorf("the file does not name the failure: %s", lines.String())
	}
}

// A subject that cannot run here does not keep the others from running.
func TestAbsentSubjectIsSkipped(t *testing.T) {
	absent := subjects.Subject{Name: "absent", Foreign: func(context.Context, string, subjects.Plan) (*exec.Cmd, error) {
		return nil, errors.New("not installed")
	}}
	j := job{subjects.Store{Name: "memory", Subjects: append(slices.Clone(subjects.Memory.Subjects), absent)}, solo}
	if all, present := len(j.subjects()), len(j.present(t.Context())); present != all-1 {
		t.Errorf("%d of %d subjects can run, want all but one", present, all)
	}
}

func TestSelection(t *testing.T) {
	for _, test := range []struct {
		only, want string
		grow       bool
	}{
		{"memory/solo", "memory/solo", false},
		{"sqlite/held,memory/solo", "sqlite/held memory/solo", false},
		{"memory", "memory/solo memory/many memory/handover memory/crowd memory/readers memory/permits memory/waiters memory/held", false},
		{"redis/grow-crowd", "redis/grow-crowd", false},
		{"exec,redis/solo", "sqlite/exec redis/exec redis/solo etcd/exec", false},
		{"etcd,memory/solo", "etcd/solo etcd/many etcd/handover etcd/crowd etcd/readers etcd/permits etcd/waiters etcd/held etcd/exec " +
			"etcd/grow-crowd etcd/grow-processes etcd/grow-readers etcd/grow-waiters etcd/grow-held memory/solo", true},
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
	if _, err := selection("oracle", false); err == nil || !strings.Contains(err.Error(), "memory, sqlite, redis") {
		t.Errorf("an unknown store gives %v, want the known ones", err)
	}
}

func TestJSONHasEveryFixedFigure(t *testing.T) {
	var out bytes.Buffer
	err := printJSON(&out, []result{{kase: "memory/solo", subject: "raw", figures: figures{pairsPerS: 12.5, handoverP50: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	want := map[string]any{
		"case": "memory/solo", "subject": "raw", "pairs_per_s": 12.5, "p50_us": nil, "p99_us": nil,
		"p99_wait_ms": nil, "jain": nil, "commands_per_pair": nil, "handover_p50_us": 3.0,
	}
	if fmt.Sprint(line) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", line, want)
	}
}

func TestTableComparesWithFloorAndPeer(t *testing.T) {
	var out bytes.Buffer
	results := []result{
		{"redis/solo", "raw", figures{pairsPerS: 300, p50: 2}, []figures{{pairsPerS: 270, p50: 2}, {pairsPerS: 440, p50: 2}, {pairsPerS: 250, p50: 2}}, ""},
		{"redis/solo", "dlock", figures{pairsPerS: 100, p50: 6, lowestRate: 90, bestRate: 110}, []figures{{pairsPerS: 90, p50: 6}, {pairsPerS: 110, p50: 7}, {pairsPerS: 100, p50: 5}}, ""},
		{"redis/solo", "redsync", figures{pairsPerS: 50}, []figures{{pairsPerS: 30}, {pairsPerS: 50}, {pairsPerS: 80}}, ""},
		{"redis/solo", "redsync/redlock", figures{pairsPerS: 1000}, nil, ""},
		{"redis/solo", "absent", nil, nil, "no such server"},
	}
	compareRates(results[:4])
	if err := printTable(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"absent: failed: no such server\n", "redis/solo", "90..110", "3.00x", "0.45x", "the rate is 2.20 of redsync's; p50 is 3.00 of raw's\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not show %q:\n%s", want, out.String())
		}
	}
}
