//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The starter is what the command's process runs first: this program, which waits
// until the guard knows the group and then becomes the command. Without it there
// would be a moment in which the command is there and nobody would end its group
// if dlock were killed.
//
// It says why it could not become the command, by the number of the error, or
// nothing.

// Its pipes keep the numbers that they have in dlock. The caller's descriptors are
// open in dlock under their own numbers, so that none of them is in the way.

// starterName is the starter's argv[0]. The numbers of its two pipes follow, then
// the path and the command's own arguments.
const starterName = "dlock-starter"

func isStarter(args []string) bool { return len(args) > 4 && args[0] == starterName }

// starter is the whole program of the starter. It returns only if it did not become
// the command.
func starter(args []string) int {
	gate, fate := inheritedPipe(args[1]), inheritedPipe(args[2])
	if gate == nil || fate == nil {
		return exitUnavailable // not started by dlock
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return exitUnavailable // dlock is gone
	}
	err := syscall.Exec(args[3], args[4:], os.Environ()) //nolint:gosec // that is what it is for
	number, _ := errors.AsType[syscall.Errno](err)
	_, _ = io.WriteString(fate, strconv.Itoa(int(number)))
	return exitNotExecutable
}

// inheritedPipe opens the descriptor with that number, and keeps it from the
// command.
func inheritedPipe(number string) *os.File {
	fd, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return nil
	}
	syscall.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "pipe")
}

// inheritable lets the next process that is started have the file under the same
// number, and returns the number. Nothing else is started until it is closed.
func inheritable(file *os.File) (string, error) {
	fd := file.Fd()
	_, err := unix.FcntlInt(fd, unix.F_SETFD, 0)
	return strconv.FormatUint(uint64(fd), 10), os.NewSyscallError("fcntl", err)
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
	gateNumber, err := inheritable(gateRead)
	fateNumber, err2 := inheritable(fateWrite)
	var process *os.Process
	if err = errors.Join(err, err2); err == nil {
		process, err = os.StartProcess(self, append([]string{starterName, gateNumber, fateNumber, j.path}, j.args...), &os.ProcAttr{
			Env:   j.env,
			Files: j.files,
			Sys:   childAttributes(),
		})
	}
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
