package layering

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
)

// Every claim of docs/guarantees.md names what shows it, and that exists.
func TestClaimsAreShown(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	proofs := proofsIn(t, root)
	for _, problem := range unproven(string(text), proofs) {
		t.Error(problem)
	}
	broken := "| claim | shown by |\n|---|---|\n| a | `TestOfNothing` |\n| b | |\n| c | `no-such-clause` |\n"
	if found := unproven(broken, proofs); len(found) != 3 {
		t.Errorf("in a document with three mistakes it found %q", found)
	}
}

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// proofsIn collects the tests of the repository and the clauses of the kit.
func proofsIn(t *testing.T, root string) map[string]bool {
	t.Helper()
	proofs := map[string]bool{}
	for _, clause := range drivertest.Clauses() {
		proofs[clause.ID] = true
	}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range testFunc.FindAllSubmatch(source, -1) {
			proofs[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return proofs
}

// unproven returns what is wrong with the rows of the tables. The last column
// names the proofs; a row that says that something plays no part needs none.
func unproven(text string, proofs map[string]bool) (problems []string) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.Contains(line, "shown by |") {
			continue
		}
		names := quoted.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(names) == 0 && !strings.Contains(line, "play no part") {
			problems = append(problems, "nothing shows: "+strings.TrimSpace(line))
		}
		for _, name := range names {
			test, _, _ := strings.Cut(name[1], "/")
			if !proofs[test] {
				problems = append(problems, "there is no "+name[1])
			}
		}
	}
	return problems
}
