package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const lastSignal = syscall.Signal(64)

// ChildAttributes put a process into a group of its own and let it die with dlock. Package
// syscall closes the gap between fork and prctl: a child whose parent has ended ends itself.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Executable returns the path of this program, which is valid even if the file was replaced.
func Executable() (string, error) { return "/proc/self/exe", nil }

// uptime reads a clock that counts the time in which the machine is suspended.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()
