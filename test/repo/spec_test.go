package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSpecNamesItsFunctions checks that spec/README.md has a row for every action of the
// specifications, and that the Go functions in these rows exist.
func TestSpecNamesItsFunctions(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "spec/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"Lock", "Quorum"} {
		source, err := os.ReadFile(filepath.Join(root, "spec", module+".tla"))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range unmapped(module, string(source), string(readme)) {
			t.Error(problem)
		}
	}
	const source = "Next ==\n  \\/ Ask(c) \\/ Raise\n\nSpec == Init\n"
	const document = "\nSome.tla:\n\n| action | Go |\n|---|---|\n" +
		"| Ask | `redislock/redlock.round.ask`, `redislock/redlock.round.nothing`, `redislock/redlock.newBallot` |\n| Old | time |\n"
	if found := unmapped("Some", source, document); len(found) != 3 {
		t.Errorf("in a map with three mistakes it found %q", found)
	}
}

var (
	// nextOf matches the disjuncts of a specification's next step.
	nextOf     = regexp.MustCompile(`(?ms)^Next ==$(.*?)^$`)
	disjunct   = regexp.MustCompile(`(?:\\/|:) ([A-Z]\w*)`)
	goFunction = regexp.MustCompile("`([a-z/]+)\\.(?:(\\w+)\\.)?(\\w+)`")
)

// unmapped compares the actions of a module with the table that follows its name in the
// document: a row for each action, no other rows, and functions that exist.
func unmapped(module, source, document string) (problems []string) {
	actions := map[string]bool{}
	next := nextOf.FindStringSubmatch(source)
	if next == nil {
		return []string{module + " has no next step"}
	}
	for _, match := range disjunct.FindAllStringSubmatch(next[1], -1) {
		actions[match[1]] = true
	}
	_, table, _ := strings.Cut(document, "\n"+module+".tla:\n\n| action | Go |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		action, functions, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		if !actions[action] {
			problems = append(problems, fmt.Sprintf("%s has no action %s", module, action))
		}
		delete(actions, action)
		for _, f := range goFunction.FindAllStringSubmatch(functions, -1) {
			if !hasFunction(f[1], f[2], f[3]) {
				problems = append(problems, fmt.Sprintf("%s: there is no %s", action, f[0]))
			}
		}
	}
	for action := range actions {
		problems = append(problems, fmt.Sprintf("spec/README.md does not say what %s of %s is in Go", action, module))
	}
	return problems
}

// hasFunction reports whether the package in that folder, dlock for the root, has a function, or a
// method of the receiver if there is one.
func hasFunction(folder, receiver, name string) bool {
	if folder == "dlock" {
		folder = "."
	}
	files, _ := filepath.Glob(filepath.Join(root, path.Clean(folder), "*.go"))
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		for _, declared := range parsed.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Name.Name == name && receiverOf(f) == receiver {
				return true
			}
		}
	}
	return false
}

// receiverOf returns the name of the type of a method, or "" for a function.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	kind := f.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	switch generic := kind.(type) {
	case *ast.IndexExpr:
		kind = generic.X
	case *ast.IndexListExpr:
		kind = generic.X
	}
	name, _ := kind.(*ast.Ident)
	return name.String()
}
