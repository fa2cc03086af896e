//go:build !unix || solaris || aix

package drivertest_test

import (
	"errors"
	"os"
)

// flock would need a module for this system.
func flock(*os.File) error { return errors.ErrUnsupported }
