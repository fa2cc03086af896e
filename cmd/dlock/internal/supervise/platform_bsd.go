//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const lastSignal = syscall.Signal(31)

// uptimeClock is CLOCK_MONOTONIC, which package unix does not have for NetBSD.
var uptimeClock = map[string]int32{"darwin": 6, "dragonfly": 4, "freebsd": 4, "netbsd": 3, "openbsd": 3}[runtime.GOOS]

// childAttributes put a process into a group of its own. The guard ends it with dlock.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// executable returns the path of this program.
func executable() (string, error) { return os.Executable() }

// shellAbove reports whether a shell would continue dlock after a stop. A script in dlock's own group counts
// as one: its parent is unknown.
func shellAbove() bool {
	own, err := unix.Getsid(0)
	parents, err2 := unix.Getsid(os.Getppid())
	return err == nil && err2 == nil && own == parents && own != unix.Getpgrp() && os.Getppid() > 1
}

// stopGroup stops dlock's process group. It takes SIGSTOP, because the Go runtime continues to catch
// a signal that it was once asked to catch.
func stopGroup(syscall.Signal) (restore func()) {
	_ = syscall.Kill(0, syscall.SIGSTOP)
	return func() {}
}
