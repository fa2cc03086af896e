//go:build !unix

package child

import (
	"errors"
	"syscall"
)

// Attributes put a process into a group of its own, where the system has such.
func Attributes() *syscall.SysProcAttr { return nil }

// Pause returns an error.
func (p *Process) Pause() error {
	return errors.New("this system cannot pause a process")
}

// Resume does nothing.
func (p *Process) Resume() error { return nil }
