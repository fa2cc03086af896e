package main

import "testing"

// TestMutantsApply checks that every mutant applies to the code and that its test
// exists. `make mutants` checks that the tests catch the mutants, which takes an
// hour.
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
			t.Errorf("duplicate mutant %s", &m)
		} else {
			seen[id] = true
		}
	}
	if len(table) < 100 {
		t.Errorf("%d mutants; want at least 100", len(table))
	}
}
