//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Is reports whether file is a terminal.
func Is(file *os.File) bool {
	_, ok := size(file)
	return ok
}

// Width returns how many characters fit into a line of the terminal, zero if that is unknown.
func Width(file *os.File) int {
	columns, _ := size(file)
	return columns
}

func size(file *os.File) (columns int, ok bool) {
	if file == nil {
		return 0, false
	}
	window, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(window.Col), true
}
