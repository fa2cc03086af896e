package repo

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
)

// TestClaimsAreShown checks that every claim in docs/guarantees.md and
// docs/interop.md names its proof, and that the tests that a document names
// exist.
func TestClaimsAreShown(t *testing.T) {
	docs, err := readAll(os.DirFS(root), ".md")
	if err != nil {
		t.Fatal(err)
	}
	proofs := proofsIn(t, root)
	for name, text := range docs {
		for _, problem := range unproven(text, proofs) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for _, name := range []string{"docs/guarantees.md", "docs/interop.md"} {
		if claims := strings.Count(docs[name], shownBy+" |\n"); claims == 0 {
			t.Errorf("%s has no table of claims", name)
		}
	}
	const elsewhere = "## One\nThe tests are in `test/stores/etcd`.\n| claim | shown by |\n|---|---|\n| a | `TestOldSnapshotIsRefused` |\n| b | `TestKeyLayout`, `fair-order` |\n"
	if found := unproven(elsewhere, proofs); len(found) != 1 {
		t.Errorf("in a section with one test that is elsewhere it found %q", found)
	}
	const broken = "| claim | shown by |\n|---|---|\n| a | `TestOfNothing` |\n| b | |\n| c | `no-such-clause` |\n" +
		"| d | `TestFaults/no such fault` |\n| e | `TestConformance`, `TestFaults/SIGKILL_of_the_holder` |\n\nAnd `TestOfNothingElse`.\n"
	if found := unproven(broken, proofs); len(found) != 5 {
		t.Errorf("in a document with five mistakes it found %q", found)
	}
}

// shownBy is the heading of the column with the proofs.
const shownBy = "| shown by"

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	quoted   = regexp.MustCompile("`([^`]+)`")
	// testsAreIn matches the sentence that names the folders of a section's
	// tests.
	testsAreIn = regexp.MustCompile(`(?s)tests\s+are\s+in\s[^.]*\.`)
	testName   = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][\\w/ ]*)`")
)

// evidence is the set of proofs that a document can name.
type evidence struct {
	clauses map[string]bool     // of the kit
	tests   map[string][]string // the folders of each test
	sources string              // all that there is in Go, in which subtests are named
}

// proofsIn collects the tests of the repository and the clauses of the kit.
func proofsIn(t *testing.T, root string) evidence {
	t.Helper()
	proofs := evidence{clauses: map[string]bool{}, tests: map[string][]string{}}
	for _, clause := range drivertest.Clauses() {
		proofs.clauses[clause.ID] = true
	}
	files, err := readAll(os.DirFS(root), ".go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for file, source := range files {
		if file == "test/repo/claims_test.go" {
			continue // it names tests that do not exist
		}
		all.WriteString(source)
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range testFunc.FindAllStringSubmatch(source, -1) {
			proofs.tests[match[1]] = append(proofs.tests[match[1]], path.Dir(file))
		}
	}
	proofs.sources = all.String()
	return proofs
}

// has reports whether the clause exists, or the test in one of the folders (in
// any folder if none are given). Every part of the name of a subtest must be a
// string in some source.
func (e evidence) has(name string, folders []string) bool {
	test, sub, nested := strings.Cut(name, "/")
	found := slices.ContainsFunc(e.tests[test], func(folder string) bool {
		return len(folders) == 0 || slices.Contains(folders, folder)
	})
	if !found && !e.clauses[name] {
		return false
	}
	for part := range strings.SplitSeq(sub, "/") {
		if nested && !strings.Contains(e.sources, `"`+strings.ReplaceAll(part, "_", " ")+`"`) {
			return false
		}
	}
	return true
}

// unproven returns the mistakes in the tables of claims, whose last column names
// the proofs, and in the names of tests elsewhere. A row that says that something
// plays no part needs no proof. If a section names the folders of its tests, they
// have to be there.
func unproven(text string, proofs evidence) (problems []string) {
	for section := range strings.SplitSeq(text, "\n## ") {
		var folders []string
		for _, sentence := range testsAreIn.FindAllString(section, -1) {
			for _, folder := range quoted.FindAllStringSubmatch(sentence, -1) {
				folders = append(folders, folder[1])
			}
		}
		problems = append(problems, unprovenIn(section, folders, proofs)...)
	}
	return problems
}

func unprovenIn(section string, folders []string, proofs evidence) (problems []string) {
	claims := false
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			claims = false
		case strings.HasSuffix(line, shownBy+" |"):
			claims = true
			continue
		}
		named := testName.FindAllStringSubmatch(line, -1)
		if claims && !strings.HasPrefix(line, "|---") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			named = quoted.FindAllStringSubmatch(cells[len(cells)-1], -1)
			if len(named) == 0 && !strings.Contains(line, "play no part") {
				problems = append(problems, "nothing shows: "+line)
			}
		}
		for _, name := range named {
			if !proofs.has(name[1], folders) {
				problems = append(problems, fmt.Sprintf("there is no %s in %q", name[1], folders))
			}
		}
	}
	return problems
}
