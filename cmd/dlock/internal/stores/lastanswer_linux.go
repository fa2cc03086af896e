package stores

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// openLimit is how long a server may take to answer while a store is opened.
const openLimit = answerLimit

// sinceAnswer returns how long ago a TCP connection of this process has received data.
func sinceAnswer() (least time.Duration, found bool) {
	entries, _ := os.ReadDir("/proc/self/fd") // without it nothing is known
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			continue // inherited from the caller
		}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Bytes_received == 0 {
			continue
		}
		ago := time.Duration(info.Last_data_recv) * time.Millisecond
		if !found || ago < least {
			least, found = ago, true
		}
	}
	return least, found
}
