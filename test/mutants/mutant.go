package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant breaks a rule of the design by a small edit, and names the test that must fail.
type mutant struct {
	rule string // a sentence
	at   string // a function, "Type.method", constant or variable of the package, or a file in its folder
	edit edit
	test string // the argument of -run, after the folder of the test's package if that is another one

	folder string // of the package, from the root of the project
	alone  bool
}

// table is all mutants. Each breaks a rule of a document, a package comment or a store's page.
var table = flatten(coreMutants, internalMutants, redisMutants, storeMutants, sqlMutants, commandMutants)

// section is the mutants of one package, and the folder of most of their tests.
type section struct {
	folder, tests string
	alone         bool // tests start processes without the environment, which would choose a mutant
	mutants       []mutant
}

// flatten returns the mutants of sections, which know their folders.
func flatten(sections ...[]section) (all []mutant) {
	for _, part := range sections {
		for _, s := range part {
			for _, m := range s.mutants {
				m.folder, m.alone = s.folder, s.alone
				if !strings.Contains(m.test, " ") {
					m.test = s.tests + " " + m.test
				}
				all = append(all, m)
			}
		}
	}
	return all
}

// edit changes what contains a fragment of code, which occurs once where it is looked for. Spaces
// and comments in it do not count.
type edit struct {
	kind     editKind
	fragment string
	new      string
}

type editKind int

const (
	swapped editKind = iota // the fragment becomes another one
	dropped                 // the statement is not made
	never                   // the condition of an if or a case is false
	always                  // the condition is true
)

func swap(fragment, by string) edit { return edit{kind: swapped, fragment: fragment, new: by} }
func drop(fragment string) edit     { return edit{kind: dropped, fragment: fragment} }
func no(fragment string) edit       { return edit{kind: never, fragment: fragment} }
func yes(fragment string) edit      { return edit{kind: always, fragment: fragment} }

// place is a part of a file in which a mutant makes its edit.
type place struct {
	file       string   // from the root of the project
	text       string   // of the file
	start, end int      // in text
	node       ast.Node // nil in a script
	offset     func(token.Pos) int
}

// find returns the declaration or the file in which m makes its edit.
func (m *mutant) find(root string) (*place, error) {
	folder := filepath.Join(root, m.folder)
	if filepath.Ext(m.at) == ".lua" {
		text, err := os.ReadFile(filepath.Join(folder, m.at))
		return &place{file: filepath.Join(m.folder, m.at), text: string(text), end: len(text)}, err
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		name = filepath.Base(name)
		node, offset := declaration(name, text, m.at)
		if node == nil || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if here, err := build.Default.MatchFile(folder, name); err == nil && here { // it is for this system
			file := filepath.Join(m.folder, name)
			return &place{file, string(text), offset(node.Pos()), offset(node.End()), node, offset}, nil
		}
	}
	return nil, fmt.Errorf("package %s has no %s", m.folder, m.at)
}

// declaration returns the declaration of a function, a constant or a variable in a file, and how a position becomes
// an offset in the file. Without the declaration it returns nil.
func declaration(name string, text []byte, wanted string) (ast.Node, func(token.Pos) int) {
	if base := wanted[strings.Index(wanted, ".")+1:]; !strings.Contains(string(text), base) {
		return nil, nil // parsing takes long
	}
	files := token.NewFileSet()
	offset := func(p token.Pos) int { return files.PositionFor(p, false).Offset }
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver(d)+d.Name.Name == wanted {
				return d, offset
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].Name == wanted {
					return v, offset
				}
			}
		}
	}
	return nil, nil
}

// receiver returns the type of a method and a dot.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name + "."
		}
		return name == ""
	})
	return name
}

var word = regexp.MustCompile(`\w+|[^\w\s]`)

// pattern matches a fragment with any spaces and comments between its words, which are whole.
func pattern(fragment string) *regexp.Regexp {
	words := word.FindAllString(fragment, -1)
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	p := strings.Join(words, `(?:\s|//.*\n|-- .*\n)*`)
	if regexp.MustCompile(`^\w`).MatchString(fragment) {
		p = `\b` + p
	}
	if regexp.MustCompile(`\w$`).MatchString(fragment) {
		p += `\b`
	}
	return regexp.MustCompile(p)
}

// applied returns the file of m and its text with the edit.
func (m *mutant) applied(root string) (file, before, after string, err error) {
	p, err := m.find(root)
	if err != nil {
		return "", "", "", err
	}
	found := pattern(m.edit.fragment).FindAllStringIndex(p.text[p.start:p.end], -1)
	if len(found) != 1 {
		return "", "", "", fmt.Errorf("%s in %s has %q %d times, want once", m.at, p.file, m.edit.fragment, len(found))
	}
	start, end := p.start+found[0][0], p.start+found[0][1]
	by := m.edit.new
	if m.edit.kind != swapped {
		if start, end = p.around(m.edit.kind, start, end); end == 0 {
			return "", "", "", fmt.Errorf("%s in %s: %q is in no statement or condition", m.at, p.file, m.edit.fragment)
		}
		by = p.without(m.edit.kind, p.text[start:end])
	}
	if by == p.text[start:end] {
		return "", "", "", fmt.Errorf("%s in %s: %q changes nothing", m.at, p.file, m.edit.fragment)
	}
	return p.file, p.text, p.text[:start] + by + p.text[end:], nil
}

// without returns what takes the place of a statement or a condition.
func (p *place) without(kind editKind, old string) string {
	and, or := "&&", "||"
	if p.node == nil {
		and, or = "and", "or"
	}
	switch kind {
	case never:
		return "false " + and + " (" + old + ")"
	case always:
		return "true " + or + " (" + old + ")"
	default:
		return ""
	}
}

var luaCondition = regexp.MustCompile(`if (.+) then`)

// around returns the limits of the smallest statement or condition with the text between two
// offsets. A statement in Lua is a line.
func (p *place) around(kind editKind, start, end int) (from, to int) {
	if p.node == nil {
		from = strings.LastIndex(p.text[:start], "\n") + 1
		to = end + strings.Index(p.text[end:], "\n")
		if kind == dropped {
			return from, to
		}
		if m := luaCondition.FindStringSubmatchIndex(p.text[from:to]); m != nil {
			return from + m[2], from + m[3]
		}
		return 0, 0
	}
	inside := func(n ast.Node) {
		if a, b := p.offset(n.Pos()), p.offset(n.End()); a <= start && end <= b {
			from, to = a, b // the walk comes to smaller ones later
		}
	}
	ast.Inspect(p.node, func(n ast.Node) bool {
		var conditions []ast.Expr
		var body []ast.Stmt
		switch n := n.(type) {
		case *ast.IfStmt:
			conditions = []ast.Expr{n.Cond}
		case *ast.CaseClause:
			conditions, body = n.List, n.Body
		case *ast.CommClause:
			body = n.Body
		case *ast.BlockStmt:
			body = n.List
		}
		for _, c := range conditions {
			if kind != dropped {
				inside(c)
			}
		}
		for _, statement := range body {
			if kind == dropped {
				inside(statement)
			}
		}
		return true
	})
	return from, to
}

// tests returns the folder of the package of the mutant's tests, and the argument of -run that selects
// these tests alone.
func (m *mutant) tests() (folder, run string) {
	folder, run, _ = strings.Cut(m.test, " ")
	names := strings.Split(run, "|")
	for i, name := range names {
		name, part, found := strings.Cut(name, "/")
		names[i] = "^" + name + "$"
		if found {
			names[i] += "/" + part
		}
	}
	return folder, strings.Join(names, "|")
}

// functions returns the names of the mutant's test functions.
func (m *mutant) functions() (names []string) {
	_, run, _ := strings.Cut(m.test, " ")
	for name := range strings.SplitSeq(run, "|") {
		name, _, _ = strings.Cut(name, "/")
		names = append(names, name)
	}
	return names
}
