package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Building a test program for each mutant would take most of the time. So all mutants of functions and of embedded
// files are built into one program: each is a copy of its function or file, which takes the place of the right one
// if the environment says so, also in processes that a test starts. A constant is changed in its file.

// chosen is the environment variable with the ID of a mutant.
const chosen = "DLOCK_MUTANT"

// id stays the same when the tables change, so that little is compiled again.
func (m *mutant) id() string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(m.rule))) }

// isBuiltIn reports whether m, whose place is p, is in the instrumented files.
func (m *mutant) isBuiltIn(p *place) bool {
	f, ok := p.node.(*ast.FuncDecl)
	_, named := arguments(f)
	return (p.node == nil || ok && named) && !m.alone
}

// arguments returns how a copy of f is called: with the receiver and a dot, and with the parameters. It reports
// whether all of them have names.
func arguments(f *ast.FuncDecl) (call [2]string, named bool) {
	if f == nil {
		return call, false
	}
	for i, list := range []*ast.FieldList{f.Recv, f.Type.Params} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			if len(field.Names) == 0 || field.Names[0].Name == "_" {
				return call, false
			}
			for _, name := range field.Names {
				call[i] += name.Name + []string{".", ", "}[i]
			}
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				call[i] = strings.TrimSuffix(call[i], ", ") + "..."
			}
		}
	}
	return call, true
}

// instrumented returns the files in which mutants are built in, by their names from the root of the project.
func instrumented(root string, mutants []*mutant) (map[string]string, error) {
	files, copies := make(map[string]string), make(map[string]string)
	calls := make(map[string]map[int]string) // the text that is inserted into a file at an offset
	embedded := make(map[string]string)      // changed files of each package
	for _, m := range mutants {
		p, err := m.find(root)
		if err != nil {
			return nil, err
		}
		if !m.isBuiltIn(p) {
			continue
		}
		_, before, after, err := m.applied(root)
		if err != nil {
			return nil, err
		}
		f, ok := p.node.(*ast.FuncDecl)
		if !ok {
			embedded[m.folder] += fmt.Sprintf("\t%q: %q,\n", m.id()+m.at, after)
			continue
		}
		embedded[m.folder] += "" // the package chooses, too
		name, end := p.offset(f.Name.End()), p.end+len(after)-len(before)
		suffix := "Mutant" + m.id()
		// The compiler names the rule in place of the file.
		copies[p.file] += fmt.Sprintf("\n//line %s:1\n%s%s%s\n", m.rule, after[p.start:name], suffix, after[name:end])
		with, _ := arguments(f)
		call := with[0] + f.Name.Name + suffix + "(" + with[1] + ")"
		if f.Type.Results == nil {
			call += "; return"
		} else {
			call = "return " + call
		}
		if calls[p.file] == nil {
			calls[p.file] = make(map[int]string)
		}
		calls[p.file][p.offset(f.Body.Lbrace)+1] += fmt.Sprintf(" if chosenMutant == %q { %s };", m.id(), call)
		files[p.file] = p.text
	}
	for file, inserted := range calls {
		for _, offset := range slices.Backward(slices.Sorted(maps.Keys(inserted))) {
			files[file] = files[file][:offset] + inserted[offset] + files[file][offset:]
		}
		files[file] += copies[file]
	}
	for folder, changed := range embedded {
		if err := instrumentPackage(root, folder, changed, files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

const chosenSource = `package %s

import "os"

var chosenMutant = os.Getenv(%q)

func chosenFile(read func(string) ([]byte, error)) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if text, found := changedFiles[chosenMutant+name]; found {
			return []byte(text), nil
		}
		return read(name)
	}
}

var changedFiles = map[string]string{
%s}
`

var readsEmbedded = regexp.MustCompile(`\b([a-z]\w*\.ReadFile)\("`)

// instrumentPackage adds the choice of a mutant to a package, and makes it read changed files if there are some.
func instrumentPackage(root, folder, changed string, files map[string]string) error {
	pkg, err := build.ImportDir(filepath.Join(root, folder), 0)
	if err != nil {
		return err
	}
	files[filepath.Join(folder, "chosen_mutant.go")] = fmt.Sprintf(chosenSource, pkg.Name, chosen, changed)
	if changed == "" {
		return nil
	}
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil {
			return err
		}
		file := filepath.Join(folder, name)
		before := cmp.Or(files[file], string(text))
		if after := readsEmbedded.ReplaceAllString(before, `chosenFile($1)("`); after != before {
			files[file] = after
			return nil
		}
	}
	return fmt.Errorf("package %s reads no embedded file", folder)
}
