//go:build unix

package child

import "syscall"

// ownGroup keeps Ctrl-C away from a child, also while it starts: it is its parent that
// ends it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
