package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
)

// writeProxy adds a tagged version of all modules to a folder that serves as a module proxy
// (GOPROXY=file://FOLDER).
func writeProxy(root, folder, version string) error {
	modules, err := readModules(root)
	if err != nil {
		return err
	}
	for _, m := range modules {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			return err
		}
		at := filepath.Join(folder, filepath.FromSlash(escaped), "@v")
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		tag := "refs/tags/" + m.tag(version)
		when, err := git(root, "log", "-1", "--format=%cI", tag)
		if err != nil {
			return err
		}
		goMod, err := git(root, "show", tag+":"+filepath.ToSlash(filepath.Join(m.folder, "go.mod")))
		if err != nil {
			return err
		}
		info, err := json.Marshal(map[string]string{"Version": version, "Time": when})
		if err != nil {
			return err
		}
		var archive bytes.Buffer
		if err := writeZip(&archive, root, tag, m, version); err != nil {
			return err
		}
		versions, _ := os.ReadFile(filepath.Join(at, "list")) // missing: no version yet
		for name, content := range map[string][]byte{
			version + ".info": info,
			version + ".mod":  []byte(goMod + "\n"),
			version + ".zip":  archive.Bytes(),
			"list":            append(versions, version+"\n"...),
		} {
			if err := os.WriteFile(filepath.Join(at, name), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
