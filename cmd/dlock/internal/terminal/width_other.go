//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package terminal

import "os"

// Is returns false: terminals are not recognised on this system.
func Is(*os.File) bool { return false }

// Width returns zero, which stands for an unknown width.
func Width(*os.File) int { return 0 }
