//go:build unix

package child

import "syscall"

// Pause stops the child where it is, as a long pause of its machine would.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused child go on. One that is not paused does not notice.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
