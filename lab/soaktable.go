//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dlock-go/dlock/lab/soak"
	"github.com/dlock-go/dlock/test/harness/digits"
)

// soakHeader begins the table of results in docs/soak.md. A row is the newest soak of a store.
const soakHeader = `| store | acquisitions | faults | time | leases lost | wake-up | more at the end: goroutines, connections, memory, entries | seed |
|---|---:|---:|---:|---:|---:|---|---:|
`

// writeSoakRow replaces the row of a store in the table of a file.
func writeSoakRow(file string, r *soak.Result) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := withSoakRow(string(text), r)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}

func withSoakRow(text string, r *soak.Result) (string, error) {
	before, table, found := strings.Cut(text, soakHeader)
	if !found {
		return "", fmt.Errorf("no table that begins with %q", soakHeader)
	}
	rows := make(map[string]string)
	for strings.HasPrefix(table, "|") {
		row, rest, _ := strings.Cut(table, "\n")
		rows[strings.TrimSpace(strings.Split(row, "|")[1])], table = row, rest
	}
	rows[r.Store] = soakRow(r)
	var b strings.Builder
	b.WriteString(before + soakHeader)
	for _, name := range soak.Stores() {
		if row, ok := rows[name]; ok {
			b.WriteString(row + "\n")
		}
	}
	return b.String() + table, nil
}

func soakRow(r *soak.Result) string {
	if !r.OK() {
		return fmt.Sprintf("| %s | FAILED: %d violations, %d things grew ||||||%d |", r.Store, len(r.Violations), len(r.Grown), r.Seed)
	}
	more := fmt.Sprintf("%+d, %+d, %+.1f MB, %+d", r.End.Goroutines-r.Start.Goroutines, r.End.Connections-r.Start.Connections,
		(float64(r.End.Heap)-float64(r.Start.Heap))/1e6, r.Entries[1]-r.Entries[0])
	wake := "–"
	if r.Wakes > 0 {
		wake = fmt.Sprintf("%.1f ms", r.Wake.Seconds()*1000)
	}
	return fmt.Sprintf("| %s | %s | %s | %v | %s | %s | %s | %d |", r.Store, digits.Grouped(r.Counts.Acquired), digits.Grouped(sum(r.Counts.Faults)),
		r.Time.Round(time.Second), digits.Grouped(r.Counts.Lost), wake, more, r.Seed)
}
