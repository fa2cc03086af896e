package repo

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the folders that no other module imports.
var programs = []string{"cmd", "examples", "lab", "test"}

// publicFolders returns the folders below root, of any module, with packages that
// users can import.
func publicFolders(root string) ([]string, error) {
	var folders []string
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if at != root {
			if isIgnored(entry.Name()) || entry.Name() == "internal" {
				return filepath.SkipDir
			}
			if parent := filepath.Dir(at); parent == root && slices.Contains(programs, entry.Name()) {
				return filepath.SkipDir
			}
		}
		if sources, err := filepath.Glob(filepath.Join(at, "*.go")); err != nil || len(sources) == 0 {
			return err
		}
		folder, err := filepath.Rel(root, at)
		folders = append(folders, folder)
		return err
	})
	return folders, err
}

// exported renders the exported declarations of the package in a folder, without
// comments and bodies, sorted: all that a user's program can depend on.
func exported(folder, importPath string) (string, error) {
	pkg, err := build.ImportDir(folder, 0)
	if err != nil {
		return "", err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		parsed, err := parser.ParseFile(fset, filepath.Join(folder, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		files = append(files, parsed)
	}
	docs, err := doc.NewFromFiles(fset, files, importPath)
	if err != nil {
		return "", err
	}
	var list declarations
	list.values(docs.Consts)
	list.values(docs.Vars)
	list.funcs(docs.Funcs)
	for _, t := range docs.Types {
		list.add(t.Decl)
		list.values(t.Consts)
		list.values(t.Vars)
		list.funcs(t.Funcs)
		list.funcs(t.Methods)
	}
	slices.Sort(list.texts)
	return fmt.Sprintf("package %s // %s\n\n%s", docs.Name, importPath, strings.Join(list.texts, "")), list.err
}

// declarations collects the text of declarations, one entry each.
type declarations struct {
	texts []string
	err   error
}

func (d *declarations) values(values []*doc.Value) {
	for _, v := range values {
		if isEnumeration(v.Decl) {
			d.add(v.Decl)
			continue
		}
		for _, spec := range v.Decl.Specs { // a member of a group may be added or removed alone
			d.add(&ast.GenDecl{Tok: v.Decl.Tok, Specs: []ast.Spec{spec}})
		}
	}
}

// isEnumeration reports whether the values of some constants of a group depend on
// their position.
func isEnumeration(decl *ast.GenDecl) bool {
	return decl.Tok == token.CONST && slices.ContainsFunc(decl.Specs, func(spec ast.Spec) bool {
		value, ok := spec.(*ast.ValueSpec)
		return ok && len(value.Values) == 0
	})
}

func (d *declarations) funcs(funcs []*doc.Func) {
	for _, f := range funcs {
		f.Decl.Body = nil
		d.add(f.Decl)
	}
}

func (d *declarations) add(decl ast.Decl) {
	ast.Inspect(decl, bare)
	var text bytes.Buffer
	// The file set has no files: the layout of the source is not part of the API.
	if err := format.Node(&text, token.NewFileSet(), decl); err != nil {
		d.err = err
	}
	d.texts = append(d.texts, text.String()+"\n")
}

// bare drops comments, and replaces the note about hidden fields by a word.
func bare(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.GenDecl:
		n.Doc = nil
	case *ast.FuncDecl:
		n.Doc = nil
	case *ast.TypeSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.ValueSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.Field:
		n.Doc, n.Comment = nil, nil
	case *ast.StructType:
		if n.Incomplete {
			n.Incomplete = false
			hide(n.Fields)
		}
	case *ast.InterfaceType:
		if n.Incomplete {
			n.Incomplete = false
			hide(n.Methods)
		}
	}
	return true
}

// hide adds an entry that stands for all unexported entries.
func hide(list *ast.FieldList) {
	list.List = append(list.List, &ast.Field{Type: ast.NewIdent("unexported")})
}
