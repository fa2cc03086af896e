package child

import (
	"syscall"

	"github.com/dlock-go/dlock/test/harness/pause"
)

// Attributes put a process into a group of its own, so that Ctrl-C is for its parent only, and let it
// die with its parent, even if it is paused.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// Pause stops the process, as a long garbage collection does, and returns when all its threads have stopped.
func (p *Process) Pause() error { return pause.Process(p.PID()) }

// Resume lets the process go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
