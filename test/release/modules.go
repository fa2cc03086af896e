package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// goModule is a module of the repository.
type goModule struct {
	folder string // relative to the root of the repository, which is "."
	path   string
	needs  []string // the paths of the modules of the repository that it requires
}

// tag returns the name of the tag for a version of the module.
func (m goModule) tag(version string) string { return path.Join(m.folder, version) }

// readModules returns the modules that go.work names. A module comes after those that it requires.
func readModules(root string) ([]goModule, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var modules []goModule
	files := map[string]*modfile.File{} // by the path of the module
	for _, use := range work.Use {
		file, err := readGoMod(root, use.Path)
		if err != nil {
			return nil, err
		}
		m := goModule{folder: path.Clean(use.Path), path: file.Module.Mod.Path}
		modules, files[m.path] = append(modules, m), file
	}
	for i, m := range modules {
		for _, require := range files[m.path].Require {
			if files[require.Mod.Path] != nil {
				modules[i].needs = append(modules[i].needs, require.Mod.Path)
			}
		}
	}
	// No module requires one that requires as many others as itself.
	slices.SortStableFunc(modules, func(a, b goModule) int { return len(a.needs) - len(b.needs) })
	for i, m := range modules {
		for _, later := range modules[i:] {
			if slices.Contains(m.needs, later.path) {
				return nil, fmt.Errorf("%s requires %s, which has as many requirements: sort them by another rule", m.path, later.path)
			}
		}
	}
	return modules, nil
}

func readGoMod(root, folder string) (*modfile.File, error) {
	name := filepath.Join(root, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}

// requireVersion makes a module require a version of the modules that it needs, and removes
// their replacements.
func requireVersion(root string, m goModule, version string) error {
	file, err := readGoMod(root, m.folder)
	if err != nil {
		return err
	}
	for _, needed := range m.needs {
		if err := file.AddRequire(needed, version); err != nil {
			return err
		}
		if err := file.DropReplace(needed, ""); err != nil {
			return err
		}
	}
	file.Cleanup()
	if len(file.Replace) > 0 {
		return fmt.Errorf("%s replaces %s: go install would reject it", m.path, file.Replace[0].Old.Path)
	}
	text, err := file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, m.folder, "go.mod"), text, 0o644)
}

// writeZip writes the zip file of a module as a proxy serves it. A revision is a commit or a tree.
func writeZip(w io.Writer, root, revision string, m goModule, version string) error {
	folder := m.folder
	if folder == "." {
		folder = ""
	}
	return zip.CreateFromVCS(w, module.Version{Path: m.path, Version: version}, root, revision, folder)
}

// sums returns the lines of go.sum for a version of a module.
func sums(root, revision string, m goModule, version string) ([]string, error) {
	file, err := os.CreateTemp("", "dlock-release-*.zip")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer file.Close()
	if err := writeZip(file, root, revision, m, version); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	goMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(root, m.folder, "go.mod"))
	})
	line := m.path + " " + version
	return []string{line + " " + whole, line + "/go.mod " + goMod}, err
}

// addSums adds lines to the go.sum of a module, in the order of the go command.
func addSums(root string, m goModule, lines []string) error {
	name := filepath.Join(root, m.folder, "go.sum")
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	hashes := map[module.Version]string{}
	for line := range strings.Lines(string(text) + strings.Join(lines, "\n") + "\n") {
		if fields := strings.Fields(line); len(fields) == 3 {
			hashes[module.Version{Path: fields[0], Version: fields[1]}] = fields[2]
		}
	}
	var versions []module.Version
	for v := range hashes {
		versions = append(versions, v)
	}
	module.Sort(versions)
	var sorted strings.Builder
	for _, v := range versions {
		fmt.Fprintln(&sorted, v.Path, v.Version, hashes[v])
	}
	return os.WriteFile(name, []byte(sorted.String()), 0o644)
}
