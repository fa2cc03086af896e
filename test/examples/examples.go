// Package examples runs the programs of the folder examples.
package examples

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Folder is the folder of the examples, relative to a package of this module.
const Folder = "../../examples"

// built is the folder of the programs; empty before the build.
var built string

// programs builds all examples once.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dlock-examples-")
	if err != nil {
		return "", err
	}
	built = folder
	cmd := exec.Command("go", "build", "-o", folder, "./...")
	cmd.Dir = Folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("building the examples: %w", err), errors.New(string(output)))
	}
	return folder, nil
})

// Remove removes the programs. TestMain calls it after all tests.
func Remove() {
	if built != "" {
		_ = os.RemoveAll(built) // a temporary folder: a failure does not matter
	}
}

// Command returns an example that is not started yet. It is killed when the test
// ends.
func Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), filepath.Join(folder, name), args...)
}
