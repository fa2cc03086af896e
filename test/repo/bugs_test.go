package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
)

// TestBugsAreReproduced checks that every bug in docs/bugs.md names what reproduces it, and
// that the stories, mutants and clauses exist. TestClaimsAreShown checks the tests.
func TestBugsAreReproduced(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "bugs.md"))
	if err != nil {
		t.Fatal(err)
	}
	clauses := make(map[string]bool)
	for _, clause := range drivertest.Clauses() {
		clauses[clause.ID] = true
	}
	files, err := readAll(os.DirFS(root), ".go")
	if err != nil {
		t.Fatal(err)
	}
	var stories, mutants strings.Builder
	for name, source := range files {
		switch {
		case strings.HasPrefix(name, "lab/stories/"):
			stories.WriteString(source)
		case strings.HasPrefix(name, "test/mutants/table_"):
			mutants.WriteString(source)
		}
	}
	bugs := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "bug" {
			continue
		}
		bugs++
		named := quoted.FindAllStringSubmatch(cells[1], -1)
		if len(named) == 0 {
			t.Errorf("nothing reproduces: %s", line)
		}
		for _, name := range named {
			kind, what, _ := strings.Cut(name[1], " ")
			switch {
			case kind == "story" && strings.Contains(stories.String(), `Name: "`+what+`"`):
			case kind == "mutant" && strings.Contains(mutants.String(), `"`+what+`"`):
			case strings.HasPrefix(name[1], "Test"), clauses[name[1]]:
			default:
				t.Errorf("there is no %s", name[1])
			}
		}
	}
	if bugs < 40 {
		t.Errorf("%d bugs; want at least 40: the table has another form", bugs)
	}
}
