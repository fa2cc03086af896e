//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/lab/soak"
	"github.com/dlock-go/dlock/test/harness/checkout"
)

// soakTime is how long each store is soaked in the tests. `make soak` soaks them for longer.
const soakTime = 5 * time.Second

// soakPace leaves the machine to the tests that run at the same time.
const soakPace = 1500 * time.Millisecond

// TestSoak: on every store processes lock while faults happen, and nothing is broken, stuck or
// left over.
func TestSoak(t *testing.T) {
	for _, store := range soak.Stores() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			result, err := soak.Run(t.Context(), soak.Config{Store: store, Time: soakTime, Seed: 1, Pictures: t.TempDir(), Pace: soakPace})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(verdict(result))
			if !result.OK() {
				t.Errorf("again: go run ./lab soak --store %s --seed %d", store, result.Seed)
			}
			if result.Counts.Acquired == 0 || result.Counts.Checked != result.Counts.Acquired {
				t.Errorf("%d acquisitions, of which %d were checked", result.Counts.Acquired, result.Counts.Checked)
			}
			if sum(result.Counts.Faults) == 0 {
				t.Error("no fault was caused")
			}
		})
	}
}

const soakHeader = "wake-up | more at the end: goroutines, connections, memory, entries | seed |\n|---|---:|---:|---:|---:|---:|---|---:|\n"

// TestSoakTable: docs/soak.md shows for every store a soak that reached the goals, and the row of a new
// result replaces that of its store and nothing else.
func TestSoakTable(t *testing.T) {
	file, err := checkout.Folder("docs/soak.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), soakHeader)
	rows := make(map[string]string)
	for row := range strings.Lines(table) {
		fields := strings.Split(strings.ReplaceAll(row, ",", ""), "|")
		if len(fields) < 5 {
			break
		}
		var store string
		var acquired, faults int
		var took string
		if n, err := fmt.Sscan(strings.Join(fields[1:5], " "), &store, &acquired, &faults, &took); n != 4 {
			t.Errorf("%s: %v", row, err)
		}
		length, err := time.ParseDuration(took)
		if acquired < wantedAcquired || faults < wantedFaults || length > wantedTime || err != nil {
			t.Errorf("%s: want %d acquisitions and %d faults in %v at most, %v", row, wantedAcquired, wantedFaults, wantedTime, err)
		}
		rows[store] = row
	}
	for _, store := range soak.Stores() {
		if rows[store] == "" {
			t.Errorf("%s has no row", store)
		}
	}
	r := &soak.Result{Store: "redis", Seed: 7, Time: 90 * time.Second, Wake: 1250 * time.Microsecond, Wakes: 3,
		Start: soak.Measure{Goroutines: 5, Connections: 2, Heap: 2_000_000}, End: soak.Measure{Goroutines: 4, Connections: 3, Heap: 3_500_000},
		Entries: [2]int{10, 8}, Counts: soak.Counts{Acquired: 1_000_001, Lost: 12, Faults: map[string]int{"pause": 1000, "kill": 23}}}
	const row = "| redis | 1,000,001 | 1,023 | 1m30s | 12 | 1.2 ms | -1, +1, +1.5 MB, -2 | 7 |\n"
	if got, err := withSoakRow(string(text), r); err != nil || got != strings.Replace(string(text), rows["redis"], row, 1) {
		t.Errorf("%v; want the row %s in\n%s", err, row, got)
	}
	r.Violations = make([]soak.Violation, 1)
	if row := soakRow(r); !strings.Contains(row, "FAILED") {
		t.Errorf("a soak with a violation has the row %s", row)
	}
}
