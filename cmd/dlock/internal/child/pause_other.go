//go:build !unix

package child

import "errors"

// Pause is not possible here.
func (p *Process) Pause() error {
	return errors.New("this system cannot stop a process and let it go on")
}

// Resume does nothing, because Pause does nothing.
func (p *Process) Resume() error { return nil }
