package main

import "testing"

// TestMutantsApply: every mutant still applies to the code, and its test exists.
// Whether the test catches it takes an hour to find out: make mutants.
func TestMutantsApply(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range table {
		if _, _, err := m.applied("../.."); err != nil {
			t.Errorf("%s: %v", &m, err)
		}
		if _, err := m.tests("../.."); err != nil {
			t.Errorf("%s: %v", &m, err)
		}
		if id := m.file + "\n" + m.old + "\n" + m.new; seen[id] {
			t.Errorf("%s is there twice", &m)
		} else {
			seen[id] = true
		}
	}
	if len(table) < 100 {
		t.Errorf("%d mutants; want at least 100", len(table))
	}
}
