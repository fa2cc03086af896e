//go:build !unix

package child

import (
	"errors"
	"syscall"
)

// Attributes are those of every process.
func Attributes() *syscall.SysProcAttr { return nil }

// Pause returns an error.
func (p *Process) Pause() error { return errors.New("this system cannot pause a process") }

// Resume does nothing.
func (p *Process) Resume() error { return nil }
