//go:build unix

package child

import "syscall"

// Stop stops the child as a long pause of its machine would.
func (p *Process) Stop() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a stopped child go on.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
