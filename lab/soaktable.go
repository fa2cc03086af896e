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
	before, row, found := strings.Cut(text, "\n| "+r.Store+" | ")
	_, after, ends := strings.Cut(row, "\n")
	if !found || !ends {
		return "", fmt.Errorf("no table with a row for %s", r.Store)
	}
	return before + "\n" + soakRow(r) + "\n" + after, nil
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
