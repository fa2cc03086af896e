//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/stories"
	"github.com/dlock-go/dlock/lab/subject"
)

// asProgram is the environment variable that makes the tests the program itself.
const asProgram = "DLOCK_LAB_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if err, ok := child.Run(roles()); ok {
		exit(err)
	}
	subject.NoJava = true // a run must not depend on what is in the cache
	os.Exit(m.Run())
}

// TestRun: a story is played on a real server, the mistake is caught, dlock holds, and
// all files are written.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := start(t.Context(), []string{"task-outlives-ttl", "--save", at("lab.json"), "pause-before-write", "--store", "redis"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := start(t.Context(), []string{"draw", at("lab.json"), "--html", at("lab.html"), "--docs", dir}, t.Output()); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string][]string{
		"lab.html": {"redis/no-watchdog", "two holders", "<svg", "B believes to have the lock"},
		"lab.svg":  {"<svg xmlns", "redis/dlock", "class=\"said\""},
		"lab.md": {"| 5. The task takes longer", "**two holders**: redis/no-watchdog", "**held**: redis/dlock", "| `pause-before-write` |",
			"**stale write accepted**: redis/no-fence", "**stale write refused**: redis/dlock"},
	} {
		text, err := os.ReadFile(at(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s does not contain %q", name, word)
			}
		}
		if strings.Contains(string(text), "href=\"http") || strings.Contains(string(text), "src=") {
			t.Errorf("%s needs other files", name)
		}
	}
}

// TestWrongVerdictFails: a run whose verdicts are not as expected fails.
func TestWrongVerdictFails(t *testing.T) {
	t.Parallel()
	jobs, err := choose([]string{"token"}, "")
	if err != nil {
		t.Fatal(err)
	}
	jobs[0].Cases = []stories.Case{{Subject: "none", Expect: []stage.Verdict{stage.Held}}}
	p := player{jobs: jobs, out: t.Output()}
	if _, err := p.playAll(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of 1") {
		t.Errorf("no lock that is expected to hold: %v", err)
	}
}

// TestStories: the stories are complete and listed, those without a server first, and every subject is used.
func TestStories(t *testing.T) {
	used := make(map[string]bool)
	var names []string
	var listed strings.Builder
	if err := start(t.Context(), nil, &listed); err != nil {
		t.Fatal(err)
	}
	if strings.Index(listed.String(), "oversell") > strings.Index(listed.String(), "expiry-in-two-steps") {
		t.Error("a story on a server comes before one without")
	}
	for _, story := range stories.All {
		names = append(names, story.Name)
		if !strings.Contains(listed.String(), " "+story.Name+" ") {
			t.Errorf("%s is not in the list", story.Name)
		}
		if story.Title == "" || story.Tells == "" || story.Play == nil || story.TTL == 0 || story.Number == 0 {
			t.Errorf("%s is not complete", story.Name)
		}
		ours := false
		for _, place := range story.Places("") {
			for _, c := range place.Cases {
				used[c.Subject] = true
				s := subject.Named(c.Subject)
				ours = ours || s.Role == subject.Ours
				if (s.Role == subject.Peer) != (len(c.Expect) == 0) {
					t.Errorf("%s: %s is a %s and has the expected verdicts %q", story.Name, c.Subject, s.Role, c.Expect)
				}
				if s.Role == subject.Wrong && slices.Contains(c.Expect, stage.Held) {
					t.Errorf("%s: the mistake %s is expected to hold", story.Name, c.Subject)
				}
			}
		}
		if !ours {
			t.Errorf("%s is not played with dlock", story.Name)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(stories.All) {
		t.Error("two stories have the same name")
	}
	for _, s := range subject.All {
		if !used[s.Name] {
			t.Errorf("%s is in no story", s.Name)
		}
	}
}

// TestBadCommand: what cannot be played is said before anything runs.
func TestBadCommand(t *testing.T) {
	for args, want := range map[string]string{
		"nothing":                          `no story is called "nothing"`,
		"open-transaction --store etc":     "is played on etc",
		"herd --stock 5":                   "for oversell, token and pause",
		"herd --store redis://127.0.0.1:1": "none of these stories",
		"oversell --store":                 "flag needs an argument",
		"oversell --store=":                "--store is empty",
		"oversell --db=":                   "--db is empty",
		"oversell --processes 51":          "outside 1 to 50",
		"oversell --think -1s":             "negative",
		"pause --ttl 0.1":                  "outside 500ms to 1m0s",
		"token --html no/such/folder/page": "cannot write the file",
		"oversell --nosuch":                "not defined",
		"--json":                           "name a story",
		"draw":                             "name the file",
		"soak":                             "name a store",
		"soak --store mongodb":             `unknown store "mongodb"`,
		"soak everything":                  `unknown argument "everything"`,
		"soak --spoiled --only x-y-z":      "no mistake",
	} {
		if err := start(t.Context(), strings.Fields(args), t.Output()); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("lab %s: %v, want %q", args, err, want)
		}
	}
}
