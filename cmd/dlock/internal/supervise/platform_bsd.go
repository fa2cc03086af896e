//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"os"
	"runtime"
	"syscall"
)

const lastSignal = syscall.Signal(31)

// uptimeClock is CLOCK_MONOTONIC, which package unix does not have for NetBSD.
var uptimeClock = map[string]int32{"darwin": 6, "dragonfly": 4, "freebsd": 4, "netbsd": 3, "openbsd": 3}[runtime.GOOS]

// ChildAttributes put a process into a group of its own. The guard ends it with dlock.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Executable returns the path of this program.
func Executable() (string, error) { return os.Executable() }
