package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestMutantsApply checks that every mutant applies and that its tests exist; `make mutants`, that they fail.
func TestMutantsApply(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range table {
		if _, _, _, err := m.applied(root); err != nil {
			t.Errorf("%s: %v", m.rule, err)
		}
		folder, _ := m.tests()
		for _, name := range m.functions() {
			if !slices.Contains(testsIn(t, folder), name) {
				t.Errorf("%s: there is no test %s in %s", m.rule, name, folder)
			}
		}
		if seen[m.rule] {
			t.Errorf("two mutants break one rule: %s", m.rule)
		}
		seen[m.rule] = true
	}
	if len(table) < 100 {
		t.Errorf("%d mutants; want at least 100", len(table))
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

var spoiledRule = regexp.MustCompile(`(?m)^\t\{"([^"]+)", "`)

// TestSoakKnowsItsMutants checks that each mistake of `lab soak --spoiled` is one mutant.
func TestSoakKnowsItsMutants(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "lab/spoiled.go"))
	if err != nil {
		t.Fatal(err)
	}
	rules := spoiledRule.FindAllStringSubmatch(string(text), -1)
	if len(rules) == 0 {
		t.Error("lab/spoiled.go has no mistakes in the form that is expected")
	}
	for _, rule := range rules {
		selects := func(m mutant) bool { return strings.Contains(m.rule, rule[1]) }
		if i := slices.IndexFunc(table, selects); i < 0 || slices.ContainsFunc(table[i+1:], selects) {
			t.Errorf("not one mutant breaks %q", rule[1])
		}
	}
}
