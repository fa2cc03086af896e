//go:build linux

package main

import (
	"os"
	"strconv"
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

// TestBadSoak: what cannot be soaked is said before anything runs.
func TestBadSoak(t *testing.T) {
	for args, want := range map[string]string{
		"soak":                        "name a store",
		"soak --store mongodb":        `unknown store "mongodb"`,
		"soak everything":             `unknown argument "everything"`,
		"soak --spoiled --only x-y-z": "0 of 0",
	} {
		if err := start(t.Context(), strings.Fields(args), t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lab %s: %v, want %q", args, err, want)
		}
	}
}

// TestSoakRow: a result replaces the row of its store, and nothing else.
func TestSoakRow(t *testing.T) {
	before := "Text.\n\n" + soakHeader + "| sqlite | old |\n| redis | other |\n\nMore.\n"
	r := &soak.Result{Store: "memory", Seed: 7, Time: 90 * time.Second, Wake: 1250 * time.Microsecond, Wakes: 3, Start: soak.Measure{Goroutines: 5, Connections: 2, Heap: 2_000_000},
		End: soak.Measure{Goroutines: 4, Connections: 3, Heap: 3_500_000}, Entries: [2]int{10, 8},
		Counts: soak.Counts{Acquired: 1_000_001, Lost: 12, Faults: map[string]int{"pause": 1000, "kill": 23}}}
	const memory = "| memory | 1,000,001 | 1,023 | 1m30s | 12 | 1.2 ms | -1, +1, +1.5 MB, -2 | 7 |\n"
	want := "Text.\n\n" + soakHeader + memory + "| sqlite | old |\n| redis | other |\n\nMore.\n"
	for range 2 {
		got, err := withSoakRow(before, r)
		if err != nil || got != want {
			t.Fatalf("got %s\nwant %s, %v", got, want, err)
		}
		before = got
	}
	if _, err := withSoakRow("no table", r); err == nil {
		t.Error("a file without a table was taken")
	}
	r.Violations = make([]soak.Violation, 1)
	if row := soakRow(r); !strings.Contains(row, "FAILED") {
		t.Errorf("a soak with a violation has the row %s", row)
	}
}

// TestSoakTable: docs/soak.md shows for every store a soak that reached the goals.
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
	table, _, _ = strings.Cut(table, "\n\n")
	shown := make(map[string]bool)
	for row := range strings.Lines(table) {
		fields := strings.Split(row, "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		number := func(i int) int {
			n, err := strconv.Atoi(strings.ReplaceAll(fields[i], ",", ""))
			if err != nil {
				t.Errorf("%s: %v", row, err)
			}
			return n
		}
		took, err := time.ParseDuration(fields[4])
		if number(2) < wantedAcquired || number(3) < wantedFaults || took > wantedTime || err != nil {
			t.Errorf("%s: want %d acquisitions and %d faults in %v at most, %v", row, wantedAcquired, wantedFaults, wantedTime, err)
		}
		shown[fields[1]] = true
	}
	for _, store := range soak.Stores() {
		if !shown[store] {
			t.Errorf("%s has no row", store)
		}
	}
}
