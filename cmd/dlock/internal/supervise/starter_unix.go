//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The starter is this program in the command's process. It waits until the guard knows the
// group and then becomes the command, so that a killed dlock never leaves the group alive.
//
// If it cannot become the command, it writes the number of the error to a pipe. Its two pipes
// have the numbers that they have in dlock, where the caller's descriptors are open too: so
// they take the place of none of these.

// starterName is the argv[0] of the starter. The numbers of two pipes, the path and argv follow.
const starterName = "dlock-starter"

// runStarter is the program of the starter. It returns if it did not become the command.
func runStarter(args []string) int {
	gate, failure := inheritedPipe(args[1]), inheritedPipe(args[2])
	if gate == nil || failure == nil {
		return statusUnavailable // not started by dlock
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return statusUnavailable // dlock has ended
	}
	err := syscall.Exec(args[3], args[4:], os.Environ()) //nolint:gosec // its purpose
	number, _ := errors.AsType[syscall.Errno](err)
	_, _ = io.WriteString(failure, strconv.Itoa(int(number)))
	return statusNotExecutable
}

// inheritedPipe opens the descriptor with a number, and closes it for the command.
func inheritedPipe(number string) *os.File {
	fd, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return nil
	}
	syscall.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "pipe")
}

// inheritable makes the next process inherit the file under the number that it returns.
func inheritable(file *os.File) (string, error) {
	fd := file.Fd()
	_, err := unix.FcntlInt(fd, unix.F_SETFD, 0)
	return strconv.FormatUint(uint64(fd), 10), os.NewSyscallError("fcntl", err)
}

type starterProcess struct {
	pid           int
	gate, failure *os.File
}

func (j *Job) startStarter() (*starterProcess, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	gateRead, gate, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gateRead.Close()
	failure, failureWrite, err := os.Pipe()
	if err != nil {
		gate.Close()
		return nil, err
	}
	defer failureWrite.Close()
	gateNumber, err := inheritable(gateRead)
	failureNumber, err2 := inheritable(failureWrite)
	var process *os.Process
	if err = errors.Join(err, err2); err == nil {
		process, err = os.StartProcess(self, append([]string{starterName, gateNumber, failureNumber, j.Path}, j.Args...), &os.ProcAttr{
			Env:   j.Env,
			Files: j.Files,
			Sys:   childAttributes(),
		})
	}
	if err != nil {
		gate.Close()
		failure.Close()
		return nil, err
	}
	pid := process.Pid
	_ = process.Release() // reap waits for it
	return &starterProcess{pid, gate, failure}, nil
}

// become lets the starter become the command, unless the lock was lost meanwhile. It returns the
// error of a starter that could not.
func (s *starterProcess) become(held context.Context, path string) error {
	err := ErrLost
	if held.Err() == nil {
		err = nil
		_, _ = s.gate.Write([]byte{1}) // fails if the starter was killed, and reap sees that
	}
	s.gate.Close()                   // without the byte the starter ends
	text, _ := io.ReadAll(s.failure) // ends when the process is the command, or has ended
	s.failure.Close()
	if number, _ := strconv.Atoi(string(text)); number != 0 {
		err = &os.PathError{Op: "exec", Path: path, Err: syscall.Errno(number)}
	}
	for err != nil {
		if _, waited := syscall.Wait4(s.pid, nil, 0, nil); !errors.Is(waited, syscall.EINTR) {
			break
		}
	}
	return err
}
