//go:build unix

package memcachelock

import (
	"net"
	"syscall"
)

// isOpen reports whether an idle connection is still open: there is nothing to read, not even
// its end. The outcome of a command on a closed connection would be unknown.
func isOpen(c net.Conn) bool {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	open := false
	var buf [1]byte
	err = raw.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), buf[:])
		open = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	})
	return err == nil && open
}
