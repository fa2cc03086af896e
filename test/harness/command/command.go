// Package command runs dlock's command line for the tests of stores.
package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// built is the folder of the program; empty before the build.
var built string

// program builds the command line once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dlock-command-")
	if err != nil {
		return "", err
	}
	built = folder
	path := filepath.Join(folder, "dlock")
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join(filepath.Dir(here), "../../../cmd/dlock")
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(output)))
	}
	return path, nil
})

// Remove removes the program. TestMain calls it after all tests.
func Remove() {
	if built != "" {
		_ = os.RemoveAll(built) // a temporary folder: a failure does not matter
	}
}

// Result is the outcome of a run of the command line.
type Result struct {
	Status         int
	Stdout, Stderr string
}

// New returns a dlock command that is not started yet. store becomes DLOCK_STORE,
// unless it is empty.
func New(t testing.TB, store string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	if store != "" {
		cmd.Env = append(cmd.Env, "DLOCK_STORE="+store)
	}
	return cmd
}

// Run runs dlock until it ends.
func Run(t testing.TB, store string, args ...string) Result {
	t.Helper()
	cmd := New(t, store, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return Result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Holder is a running dlock that holds a lock.
type Holder struct {
	Token string
	cmd   *exec.Cmd
	input io.Closer
}

// Hold starts a dlock that holds a lock until End.
func Hold(t testing.TB, store, name string) *Holder {
	t.Helper()
	cmd := New(t, store, "exec", "--ttl", "20s", name, "--", "sh", "-c", "echo $DLOCK_TOKEN; cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := output.Read(line)
	token := strings.TrimSpace(string(line[:n]))
	if _, parseErr := strconv.ParseUint(token, 10, 64); err != nil || parseErr != nil {
		_ = cmd.Wait()
		t.Fatalf("DLOCK_TOKEN is %q (%v); stderr: %s", token, err, stderr.String())
	}
	return &Holder{token, cmd, input}
}

// End ends the command that holds the lock, and returns dlock's exit status.
func (h *Holder) End() int {
	h.input.Close()
	_ = h.cmd.Wait() // the exit status is returned below
	return h.cmd.ProcessState.ExitCode()
}
