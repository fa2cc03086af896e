//go:build unix && !solaris && !aix

package drivertest_test

import (
	"os"
	"syscall"
)

// flock locks a file until it is closed, or its process ends.
func flock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }
