package repo

import (
	"os"
	"path"
	"strings"
	"testing"
)

// TestFilesAndPackagesAreSmall checks that a reader can take in a file and the list of a package's files.
func TestFilesAndPackagesAreSmall(t *testing.T) {
	const maxLines, maxFiles = 400, 25
	sources, err := readAll(os.DirFS(root), ".go")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]int) // without tests, by folder
	for name, text := range sources {
		if lines := strings.Count(text, "\n"); lines > maxLines {
			t.Errorf("%s has %d lines, more than %d", name, lines, maxLines)
		}
		if !strings.HasSuffix(name, "_test.go") {
			files[path.Dir(name)]++
		}
	}
	if len(files) == 0 {
		t.Fatal("no package was found")
	}
	for folder, n := range files {
		if n > maxFiles {
			t.Errorf("%s has %d files, more than %d", folder, n, maxFiles)
		}
	}
}
