// Package process runs the processes of a server, finds the children that they start,
// and ends all of them when the test binary ends.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"github.com/dlock-go/dlock/test/harness/child"
)

// Process is the main process of a server.
type Process struct {
	PID  int
	Done chan struct{} // closed when the process has ended
	Err  error         // how the process ended; valid after Done
}

// Launch starts a program in dir, with its output appended to the file log and
// env added to its environment. The program is killed when this process ends.
func Launch(command []string, env []string, dir, log string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the program has its own copy
	cmd, err := Prepare(command, dir)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := child.Begin(cmd); err != nil {
		return nil, err
	}
	p := &Process{PID: cmd.Process.Pid, Done: make(chan struct{})}
	go func() {
		defer close(p.Done)
		p.Err = cmd.Wait()
	}()
	return p, nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Prepare returns the command to run in dir, as an unprivileged user if this
// process is root.
func Prepare(command []string, dir string) (*exec.Cmd, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + dir, "LC_ALL=C", "TMPDIR=" + dir}
	who, err := Credential()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true, // Ctrl-C ends the tests, which then stop their servers
		Pdeathsig:  syscall.SIGKILL,
		Credential: who,
	}
	return cmd, nil
}

// unprivileged is the user of the servers when the tests run as root, which most
// servers refuse. Every Linux system has this user, unlike those of the packages.
const unprivileged = "nobody"

// Credential is nil if this process is not root: then servers run as the same
// user.
var Credential = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(unprivileged)
	if err != nil {
		return nil, fmt.Errorf("servers do not run as root, and there is no other user for them: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
})
