//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import "syscall"

const lastSignal = syscall.Signal(31)

// ChildAttributes put a process into a group of its own. The guard ends it with dlock.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
