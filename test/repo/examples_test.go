package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesHaveExamples checks that the documentation of every package that users can import
// shows an example, with its output.
func TestPackagesHaveExamples(t *testing.T) {
	folders, err := publicFolders(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		tests, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range tests {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc Example") && strings.Contains(string(text), "\t// Output:")
		}
		if !found {
			t.Errorf("%s has no example with its output", folder)
		}
	}
}

// TestGoVersionIsTheSame checks that every module, the workspace and the documents name the same
// oldest Go.
func TestGoVersionIsTheSame(t *testing.T) {
	files, err := readAll(os.DirFS(root), "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	files["go.work"] = string(work)
	const oldest = "1.26"
	for name, text := range files {
		if !strings.Contains(text, "\ngo "+oldest+".0\n") && !strings.HasPrefix(text, "go "+oldest+".0\n") {
			t.Errorf("%s does not say go %s.0, the oldest that make oldest tests", name, oldest)
		}
	}
	for _, name := range []string{"README.md", "README.zh-CN.md", "CONTRIBUTING.md"} {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || !strings.Contains(string(text), "Go "+oldest) {
			t.Errorf("%s does not say that Go %s is needed: %v", name, oldest, err)
		}
	}
}
