package drivertest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
)

func TestClausesAreWellFormed(t *testing.T) {
	seen := make(map[string]bool)
	id := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, c := range drivertest.Clauses() {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("%q is not a new, short name in lower case", c.ID)
		}
		seen[c.ID] = true
		if c.Explanation == "" {
			t.Errorf("%s does not say what the contract demands", c.ID)
		}
	}
	for _, broken := range brokenStores {
		if !seen[broken.clause] {
			t.Errorf("%s: there is no clause %q", broken.mistake, broken.clause)
		}
	}
}

// TestExplanationsQuoteTheContract: what an explanation has in quotes is in the
// comments of package driver or dlock, word for word, so that the two cannot drift apart.
func TestExplanationsQuoteTheContract(t *testing.T) {
	contract := comments(t, "../driver/*.go") + comments(t, "../*.go")
	quote := regexp.MustCompile(`"([^"]+)"`)
	for _, c := range drivertest.Clauses() {
		for _, m := range quote.FindAllStringSubmatch(c.Explanation, -1) {
			if !strings.Contains(contract, m[1]) {
				t.Errorf("%s quotes %q, which the contract does not say", c.ID, m[1])
			}
		}
	}
}

// comments returns the text of all comments in one line.
func comments(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no source at %s: %v", pattern, err)
	}
	var words []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, comment, ok := strings.Cut(line, "//"); ok {
				words = append(words, strings.Fields(comment)...)
			}
		}
	}
	return strings.Join(words, " ")
}
