//go:build !linux

package stage

import (
	"errors"

	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Network exists on Linux only.
type Network struct{ Server string }

var errNoNetwork = errors.New("a network of its own needs Linux")

// Cut returns an error.
func (n *Network) Cut(...proxy.Direction) error { return errNoNetwork }

// Heal returns an error.
func (n *Network) Heal() error { return errNoNetwork }

func (n *Network) enter(command ...string) []string { return command }
