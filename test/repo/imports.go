package repo

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the root module, and the prefix of all packages.
const module = "github.com/dlock-go/dlock"

// file is a Go file with its imports.
type file struct {
	folder  string // relative to the root of the repository; "." is the root package
	name    string
	imports []string
}

func (f file) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// layer is a set of packages, with the layers that their files may import besides
// the standard library and the packages of their own folder.
type layer struct {
	name       string
	folders    []string // including their subfolders
	may        []string // other layers, by name
	thirdParty bool
}

// layers are in the order from the bottom up.
var layers = []layer{
	{name: "driver", folders: []string{"driver"}},
	{name: "internal", folders: []string{"internal"}, may: []string{"driver"}},
	{name: "fence", folders: []string{"fence"}}, // locks of any store, rows of any database
	{name: "dlock", folders: []string{"."}, may: []string{"driver", "internal"}},
	{name: "kit", folders: []string{"drivertest"}, may: []string{"driver", "dlock"}},
	{name: "store", folders: []string{"memlock", "sqllock", "sqlsession"}, may: []string{"driver", "internal"}},
	{
		name:       "client store", // a module of its own, because of its client library
		folders:    []string{"redislock", "etcdlock", "zklock", "memcachelock"},
		may:        []string{"driver", "internal"},
		thirdParty: true,
	},
	{
		name:       "command",
		folders:    []string{"cmd"},
		may:        []string{"driver", "internal", "fence", "dlock", "store", "client store"},
		thirdParty: true,
	},
	{
		name:       "examples",
		folders:    []string{"examples"},
		may:        []string{"driver", "fence", "dlock", "store", "client store"}, // the packages of users
		thirdParty: true,
	},
	{
		name:       "test",
		folders:    []string{"test"},
		may:        []string{"driver", "internal", "fence", "dlock", "kit", "store", "client store"},
		thirdParty: true,
	},
	{
		name:       "lab",
		folders:    []string{"lab"},
		may:        []string{"driver", "internal", "fence", "dlock", "store", "client store", "test"},
		thirdParty: true,
	},
}

// inTests are the layers that the tests of every layer may import in addition:
// the library is tested on the reference store, and a store is tested with the
// kit.
var inTests = []string{"driver", "internal", "dlock", "kit", "store"}

// layerOf returns the layer of a folder, and the entry in the layer's list that
// contains it. Two stores are in one layer, but may not import each other.
func layerOf(folder string) (l layer, top string, ok bool) {
	top, _, _ = strings.Cut(folder, "/")
	for _, l := range layers {
		if slices.Contains(l.folders, top) {
			return l, top, true
		}
	}
	return layer{}, "", false
}

// violations returns the imports that point in a forbidden direction.
func violations(files []file) []string {
	var found []string
	for _, f := range files {
		from, top, ok := layerOf(f.folder)
		if !ok {
			found = append(found, fmt.Sprintf("%s: no layer has this folder; add it to the layers", f.folder))
			continue
		}
		for _, imported := range f.imports {
			if why := refusal(f, from, top, imported); why != "" {
				found = append(found, fmt.Sprintf("%s imports %q: %s", path.Join(f.folder, f.name), imported, why))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// refusal returns why an import is forbidden, or "" if it is allowed.
func refusal(f file, from layer, top, imported string) string {
	below, isOurs := strings.CutPrefix(imported, module)
	switch {
	case !isOurs && isStandard(imported):
		return ""
	case !isOurs && from.thirdParty:
		return ""
	case !isOurs:
		return fmt.Sprintf("the %s layer has no third-party requirement", from.name)
	}
	folder := strings.TrimPrefix(below, "/")
	if folder == "" {
		folder = "."
	}
	to, toTop, ok := layerOf(folder)
	switch {
	case !ok:
		return "no layer has that folder"
	case toTop == top:
		return ""
	case slices.Contains(from.may, to.name):
		return ""
	case f.isTest() && slices.Contains(inTests, to.name):
		return ""
	}
	return fmt.Sprintf("the %s layer must not know the %s layer, except for %q", from.name, to.name, from.may)
}

// isStandard uses the rule of the go command: the first element of a path outside
// the standard library has a dot.
func isStandard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// readFiles reads the imports of every Go file below root, for every platform and
// build tag.
func readFiles(root string) ([]file, error) {
	var files []file
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if at != root && isIgnored(entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(at, ".go") {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(at))
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), at, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := file{folder: filepath.ToSlash(folder), name: entry.Name()}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// isIgnored reports whether the go command ignores the folder.
func isIgnored(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}
