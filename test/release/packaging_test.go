package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestImage checks the Dockerfile where nothing can build it: the image contains the program only,
// and its user is not root.
func TestImage(t *testing.T) {
	text := read(t, "packaging/Dockerfile")
	for _, want := range []string{
		`(?m)^FROM scratch$`,
		`(?m)^COPY \$\{TARGETARCH\}/dlock /dlock$`,
		`(?m)^USER [1-9]\d*:[1-9]\d*$`, // by number: there is no /etc/passwd
		`(?m)^ENTRYPOINT \["/dlock"\]$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("packaging/Dockerfile does not match %s", want)
		}
	}
	for line := range strings.Lines(text) {
		instruction, _, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(line, "#") && !slices.Contains([]string{"FROM", "ARG", "COPY", "USER", "ENTRYPOINT"}, instruction) {
			t.Errorf("packaging/Dockerfile has the instruction %s, which needs more than a program", instruction)
		}
	}
}

// TestWorkflowOnlyCallsMake checks that what CI does elsewhere is in the Makefile.
func TestWorkflowOnlyCallsMake(t *testing.T) {
	makefile, workflow := read(t, "Makefile"), read(t, ".github/workflows/ci.yml")
	targets := strings.Join(regexp.MustCompile(`(?s)target: \[.*?\]`).FindAllString(workflow, -1), " ")
	for _, want := range []string{"check", "test", "interop", "race", "lint", "oldest", "mutants"} {
		if !strings.Contains(targets, want) || !strings.Contains(makefile, "\n"+want+":") {
			t.Errorf("make %s is not in the workflow, or not in the Makefile", want)
		}
	}
}

// TestChangelog checks how the section of a version is made.
func TestChangelog(t *testing.T) {
	const before, after = "# Changelog\n\n## [Unreleased]\n\n### Added\n- x\n", "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-16\n\n### Added\n- x\n"
	if got, err := moveUnreleased(before, "v0.1.0", "2026-11-16"); got != after || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, after)
	}
	for text, want := range map[string]string{
		after:                 `already has the heading "## [0.1.0]"`,
		"# Changelog\n":       "has no heading",
		"## [Unreleased]\n\n": "says nothing below",
		"## [Unreleased]\n\n## [0.0.1] - 2026-01-01\n- x\n": "says nothing below",
	} {
		if _, err := moveUnreleased(text, "v0.1.0", "2026-11-16"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
