package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestMutantsCompile checks that the mutants of functions compile. One that does not shows nothing.
func TestMutantsCompile(t *testing.T) {
	var all []*mutant
	args := []string{"build", "-buildvcs=false", "-gcflags=-e", "-overlay", filepath.Join(t.TempDir(), "overlay")}
	for _, m := range table {
		m.alone = false // it compiles in the same way
		all = append(all, &m)
		if folder := "./" + m.folder; !slices.Contains(args, folder) {
			args = append(args, folder)
		}
	}
	files, err := instrumented(root, all)
	if err != nil {
		t.Fatal(err)
	}
	replaced := make(map[string]string)
	for name, text := range files {
		path, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		replaced[path] = filepath.Join(t.TempDir(), "changed.go")
		if err := os.WriteFile(replaced[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(args[4], overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=") // without it no module has all packages
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
