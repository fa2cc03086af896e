package repo

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the files of the folder api")

func TestExportedAPIIsReviewed(t *testing.T) {
	folders, err := publicFolders(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(folders, ".") || !slices.Contains(folders, "driver") {
		t.Fatalf("public packages are in %q: the root and driver are missing", folders)
	}
	var expected []string
	for _, folder := range folders {
		importPath := path.Join(module, filepath.ToSlash(folder))
		got, err := exported(filepath.Join(root, folder), importPath)
		if err != nil {
			t.Fatal(err)
		}
		reviewed := filepath.Join("api", apiFile(folder))
		expected = append(expected, reviewed)
		if *update {
			if err := os.WriteFile(reviewed, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(reviewed)
		if err != nil {
			t.Errorf("the API of %s has no reviewed file: %v", importPath, err)
			continue
		}
		if got != string(want) {
			t.Errorf("the API of %s changed. If that is intended: go test ./test/repo -update\n%s",
				importPath, difference(string(want), got))
		}
	}
	files, err := filepath.Glob("api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if slices.Contains(expected, f) {
			continue
		}
		if !*update {
			t.Errorf("%s describes a package that is gone", f)
		} else if err := os.Remove(f); err != nil {
			t.Error(err)
		}
	}
}

// apiFile returns the file name of a package: dlock.txt, driver.txt, a_b.txt.
func apiFile(folder string) string {
	if folder == "." {
		folder = path.Base(module)
	}
	return strings.ReplaceAll(filepath.ToSlash(folder), "/", "_") + ".txt"
}

func TestExportedRendersThePublicAPI(t *testing.T) {
	const source = `// Package p is documented.
package p

// A is documented.
type A struct {
	Seen   int // a comment
	hidden int
}

func (a *A) Method(x int) (y string) { return "" }
func (a A) hiddenMethod()            {}

type hiddenType struct{}

func NewA() *A { return nil }

const (
	One = 1
	two = 2
)

const (
	Red = iota
	Green
)

var ErrBad, errHidden error

type I interface{ M(); m() }

type Alias = A
`
	const want = `package p // example.com/p

const (
	Red = iota
	Green
)
const One = 1
func (a *A) Method(x int) (y string)
func NewA() *A
type A struct {
	Seen int
	unexported
}
type Alias = A
type I interface {
	M()
	unexported
}
var ErrBad error
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := exported(dir, "example.com/p")
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("rendered differently:\n%s", difference(want, got))
	}
}

func TestDifference(t *testing.T) {
	got := difference("a\nb\nc\nd\n", "a\nc\nx\nd\n")
	if want := "- b\n+ x\n"; got != want {
		t.Errorf("difference is %q, want %q", got, want)
	}
	if got := difference("same\n", "same\n"); got != "" {
		t.Errorf("difference of equal texts is %q", got)
	}
}

// difference lists the lines that only one of the texts has, in order, by their
// longest common subsequence.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	common := make([][]int, len(a)+1) // of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var lines strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&lines, "- %s\n", a[i])
			i++
		default:
			fmt.Fprintf(&lines, "+ %s\n", b[j])
			j++
		}
	}
	return lines.String()
}
