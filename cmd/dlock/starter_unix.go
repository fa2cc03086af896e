//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// The starter is what the command's process runs first: this program, which waits
// until the guard knows the group and then becomes the command. Without it there
// would be a moment in which the command is there and nobody would end its group
// if dlock were killed.
//
// It says why it could not become the command, by the number of the error, or
// nothing.

const starterName = "dlock-starter" // its argv[0], followed by the path and the command's own

// Where the starter finds its pipes, behind stdin, stdout and stderr.
const (
	starterGo = 3 + iota
	starterFailed
)

func isStarter(args []string) bool { return len(args) > 2 && args[0] == starterName }

// starter is the whole program of the starter. It returns only if it did not become
// the command.
func starter(args []string) int {
	syscall.CloseOnExec(starterGo)
	syscall.CloseOnExec(starterFailed)
	if _, err := io.ReadFull(os.NewFile(starterGo, "go"), make([]byte, 1)); err != nil {
		return exitUnavailable // dlock is gone
	}
	err := syscall.Exec(args[1], args[2:], os.Environ()) //nolint:gosec // that is what it is for
	number, _ := errors.AsType[syscall.Errno](err)
	_, _ = io.WriteString(os.NewFile(starterFailed, "failed"), strconv.Itoa(int(number)))
	return exitNotExecutable
}

// startedProcess is the starter as dlock sees it.
type startedProcess struct {
	pid        int
	path       string
	gate, fate *os.File
}

// startStarter starts a process that waits to become the command.
func (j *job) startStarter() (*startedProcess, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	gateRead, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gateRead.Close()
	fate, fateWrite, err := os.Pipe()
	if err != nil {
		gate.Close()
		return nil, err
	}
	defer fateWrite.Close()
	process, err := os.StartProcess(self, append([]string{starterName, j.path}, j.args...), &os.ProcAttr{
		Env:   j.env,
		Files: append(slices.Clip(j.files), gateRead, fateWrite),
		Sys:   childAttributes(),
	})
	if err != nil {
		gate.Close()
		fate.Close()
		return nil, err
	}
	pid := process.Pid
	_ = process.Release() // reap waits for it, stops included
	return &startedProcess{pid, j.path, gate, fate}, nil
}

// become lets the process be the command. An error says that it could not, and is
// gone.
func (p *startedProcess) become() error {
	_, _ = p.gate.Write([]byte{1}) // if it was killed meanwhile, that is how the command ended
	p.gate.Close()
	text, _ := io.ReadAll(p.fate) // ends when the process is the command, or dead
	p.fate.Close()
	number, _ := strconv.Atoi(string(text))
	if number == 0 {
		return nil
	}
	for {
		_, err := syscall.Wait4(p.pid, nil, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return &os.PathError{Op: "exec", Path: p.path, Err: syscall.Errno(number)}
		}
	}
}
