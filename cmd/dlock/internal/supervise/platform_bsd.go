//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"os"
	"syscall"
	"time"
)

const lastSignal = syscall.Signal(31)

// ChildAttributes put a process into a group of its own. The guard ends it with dlock.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Executable returns the path of this program.
func Executable() (string, error) { return os.Executable() }

func uptime() time.Duration { return time.Since(started) }

var started = time.Now()
