// Package command runs dlock's command line for the tests of stores.
package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/test/harness/checkout"
)

// built is the folder of the program; empty before the build.
var built string

// Program builds the command line once and returns its path.
var Program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dlock-command-")
	if err != nil {
		return "", err
	}
	built = folder
	path := filepath.Join(folder, "dlock")
	cmd := exec.Command("go", "build", "-o", path, ".")
	if cmd.Dir, err = checkout.Folder("cmd/dlock"); err != nil {
		return "", err
	}
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
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
	path, err := Program()
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

// Holder is a running dlock whose command has printed its first line.
type Holder struct {
	Line   string // without the space around it
	Cmd    *exec.Cmd
	Stderr bytes.Buffer // read it after the end
	input  io.Closer
	output io.Reader
}

// Start starts dlock with a command that prints a line when it has the lock, and reads its
// standard input.
func Start(t testing.TB, store string, args ...string) *Holder {
	t.Helper()
	h := &Holder{Cmd: New(t, store, args...)}
	input, err := h.Cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := h.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.input, h.output, h.Cmd.Stderr = input, output, &h.Stderr
	if err := h.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.Line = h.Next(t)
	return h
}

// Next returns the next line that the command prints.
func (h *Holder) Next(t testing.TB) string {
	t.Helper()
	line := make([]byte, 64)
	n, err := h.output.Read(line)
	if err != nil {
		_ = h.Cmd.Wait()
		t.Fatalf("the command prints no line (%v); stderr: %s", err, h.Stderr.String())
	}
	return strings.TrimSpace(string(line[:n]))
}

// Hold starts a dlock that holds a lock until End. Its line is the token.
func Hold(t testing.TB, store, name string) *Holder {
	t.Helper()
	h := Start(t, store, "exec", "--ttl", "20s", name, "--", "sh", "-c", "echo $DLOCK_TOKEN; cat")
	if _, err := strconv.ParseUint(h.Line, 10, 64); err != nil {
		h.End()
		t.Fatalf("DLOCK_TOKEN is %q; stderr: %s", h.Line, h.Stderr.String())
	}
	return h
}

// CloseInput lets the command read the end of its standard input.
func (h *Holder) CloseInput() { h.input.Close() }

// End ends the command that holds the lock, and returns dlock's exit status.
func (h *Holder) End() int {
	h.CloseInput()
	_ = h.Cmd.Wait() // the exit status is returned below
	return h.Cmd.ProcessState.ExitCode()
}
