package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestMutantsCompile checks that every mutant of Go code compiles. One that does not shows
// nothing, and `make mutants` would only find it after an hour.
func TestMutantsCompile(t *testing.T) {
	packages := make(map[string]*goPackage)
	for _, m := range table {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		folder := filepath.Join("../..", filepath.Dir(m.file))
		if packages[folder] == nil {
			p, err := loadPackage(t, folder)
			if err != nil {
				t.Fatal(err)
			}
			packages[folder] = p
		}
		_, text, err := m.applied("../..")
		if err == nil {
			err = packages[folder].check(filepath.Base(m.file), text)
		}
		if err != nil {
			t.Errorf("%s: %v", &m, err)
		}
	}
	for folder, p := range packages { // the check itself finds mistakes, and only these
		if err := p.check("", ""); err != nil {
			t.Errorf("%s as it is: %v", folder, err)
		}
		if err := p.check(p.GoFiles[0], "package "+p.Name+"\nvar _ = undefined\n"); err == nil {
			t.Errorf("%s: a mistake in %s was not found", folder, p.GoFiles[0])
		}
	}
}

// goPackage is a package as `go list` describes it.
type goPackage struct {
	Dir, ImportPath, Name string
	Export                string // the file with its compiled types
	GoFiles               []string

	files   map[string]*ast.File
	fset    *token.FileSet
	imports types.Importer
}

// loadPackage parses the package in a folder. What it imports is compiled if it has to be.
func loadPackage(t *testing.T, folder string) (*goPackage, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-buildvcs=false", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles", ".")
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	var p goPackage // the package itself is the last one
	for decoder := json.NewDecoder(output); err == nil; {
		var next goPackage
		if err = decoder.Decode(&next); err == nil {
			exports[next.ImportPath] = next.Export
			p = next
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("go list in %s: %w", folder, err)
	}
	p.fset, p.files = token.NewFileSet(), make(map[string]*ast.File)
	p.imports = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, name := range p.GoFiles {
		if p.files[name], err = parser.ParseFile(p.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	return &p, nil
}

// check checks the types of the package with another text of one file.
func (p *goPackage) check(name, text string) error {
	var files []*ast.File
	found := name == ""
	for file, parsed := range p.files {
		if file == name {
			var err error
			if parsed, err = parser.ParseFile(p.fset, name, text, parser.SkipObjectResolution); err != nil {
				return err
			}
			found = true
		}
		files = append(files, parsed)
	}
	if !found {
		return nil // it is for another system
	}
	config := types.Config{Importer: p.imports, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	_, err := config.Check(p.ImportPath, p.fset, files, nil)
	return err
}
