//go:build unix

package memcachelock

import (
	"net"
	"syscall"
)

// alive says whether a connection that nobody uses is still open: there is nothing to
// read, not even its end. A command that is sent into a closed one would be of
// unknown outcome.
func alive(c net.Conn) bool {
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
