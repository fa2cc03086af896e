package supervise

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	lastSignal  = syscall.Signal(64)
	uptimeClock = unix.CLOCK_BOOTTIME // counts the time in which the machine is suspended
)

// ChildAttributes put a process into a group of its own and let it die with dlock, or with the thread that started it.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Executable returns the path of this program, which is valid even if the file was replaced.
func Executable() (string, error) { return "/proc/self/exe", nil }
