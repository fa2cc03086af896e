//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Is reports whether file is a terminal.
func Is(file *os.File) bool {
	_, err := window(file)
	return err == nil
}

// Width returns how many characters fit into a line of the terminal, zero if that is unknown.
func Width(file *os.File) int {
	if size, err := window(file); err == nil {
		return int(size.Col)
	}
	return 0
}

func window(file *os.File) (*unix.Winsize, error) {
	return unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ) // fails without a file
}
