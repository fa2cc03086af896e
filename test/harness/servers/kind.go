package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// Kind describes one kind of server. The rest of this package is the same for all
// kinds.
type Kind struct {
	// Name is in lower case. The variable DLOCK_TEST_ plus the name in upper case
	// points tests at a server that runs already.
	Name string

	// Binary is the program: a name to be found in PATH, or a glob pattern whose
	// last match is used.
	Binary string

	// Init fills an empty data folder. Optional.
	Init func(in Instance) ([]Command, error)

	// Args are the arguments of the program, which stays in the foreground
	// and writes its log to stdout or stderr.
	Args func(in Instance) []string

	// oneThread holds additional arguments that make the server use a single
	// thread, which a moved clock needs. Optional.
	oneThread []string

	// Env is added to the environment of the program. Optional.
	Env func(in Instance) []string

	// Configure writes files that depend on the port, before every start.
	// Optional.
	Configure func(in Instance) error

	// Started is called when the program's process answers, or when the start has
	// failed. Optional.
	Started func(pid int) error

	// StopSignal asks for an orderly end. Default SIGTERM.
	StopSignal syscall.Signal
	// StopByKill says that Stop and Restart must not ask for an orderly end.
	StopByKill bool

	// Probe connects to addr, speaks the protocol, and returns nil if the server
	// is ready.
	Probe func(ctx context.Context, addr string) error

	// URL returns the address in the form that dlock's stores accept.
	URL func(addr string) string

	// SQL returns the command that executes statements as administrator and
	// prints rows without headings. Only databases have one.
	SQL func(in Instance, statements string) Command
}

// Instance is the server to be started, as its Kind sees it.
type Instance struct {
	Binary string // the path of the program
	Dir    string // the server's folder, which is its working directory
	Data   string // the folder within Dir that survives a restart
	Host   string
	Port   int
}

// Command is a program with its arguments, run in the server's folder by the
// user that the server runs as.
type Command []string

// Variable returns the name of the environment variable with the URL of a running
// server.
func (k *Kind) Variable() string { return "DLOCK_TEST_" + strings.ToUpper(k.Name) }

// locate returns the path of the program.
func (k *Kind) locate() (string, error) {
	if strings.Contains(k.Binary, "/") {
		matches, err := filepath.Glob(k.Binary)
		if err != nil {
			return "", fmt.Errorf("bad pattern for the program of %s: %w", k.Name, err)
		}
		if len(matches) > 0 {
			return matches[len(matches)-1], nil
		}
		return "", k.notInstalled()
	}
	// Debian installs servers into folders that are not in the PATH of every
	// user.
	for _, candidate := range []string{k.Binary, "/usr/sbin/" + k.Binary, "/usr/local/sbin/" + k.Binary} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", k.notInstalled()
}

func (k *Kind) notInstalled() error {
	return fmt.Errorf("%s is not installed (no %s): run `make servers` as root, which installs it, or set %s to the URL of a running one",
		k.Name, k.Binary, k.Variable())
}

func (k *Kind) probe(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, wire.Timeout)
	defer cancel()
	return k.Probe(ctx, addr)
}
