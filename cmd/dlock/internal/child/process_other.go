//go:build !unix

package child

import "errors"

// Stop returns an error.
func (p *Process) Stop() error {
	return errors.New("this system cannot stop a process and continue it")
}

// Continue does nothing.
func (p *Process) Continue() error { return nil }
