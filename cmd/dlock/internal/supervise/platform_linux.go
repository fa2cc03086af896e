package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const lastSignal = syscall.Signal(64)

// ChildAttributes put a process into a group of its own and let it die with dlock.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Executable returns the path of this program, which is valid even if the file was replaced.
func Executable() (string, error) { return "/proc/self/exe", nil }

// uptime reads a clock that counts the time in which the machine is suspended.
func uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // fails only before Linux 2.6.39
	return time.Duration(now.Nano())
}
