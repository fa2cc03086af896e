package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const lastSignal = syscall.Signal(64)

// childAttributes put the command into a group of its own and let it die with
// dlock. The syscall package closes the gap between fork and prctl: a child that
// finds its parent gone ends itself.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// executable is this program even if its file was replaced meanwhile.
func executable() (string, error) { return "/proc/self/exe", nil }

// uptime is a clock that also counts while the machine is suspended.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()
