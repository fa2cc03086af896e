package notify

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"
)

type inotify struct {
	path string
	fd   int
	file *os.File // the same descriptor, for reads that can be interrupted
}

func newInotify(path string) (*inotify, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	n := &inotify{path: path, fd: fd, file: os.NewFile(uintptr(fd), "inotify")}
	if err := n.file.SetReadDeadline(time.Time{}); err != nil { // not in the poller: could not be interrupted
		return nil, errors.Join(err, n.file.Close())
	}
	return n, nil
}

// interrupt ends a run whose done is closed.
func (n *inotify) interrupt() { _ = n.file.SetReadDeadline(time.Unix(1, 0)) }

func (n *inotify) run(emit func() bool, done <-chan struct{}) {
	defer n.file.Close()
	ticker := time.NewTicker(statInterval)
	defer ticker.Stop()
	for {
		const written, replaced = syscall.IN_MODIFY, syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
		wd, err := syscall.InotifyAddWatch(n.fd, n.path, written|replaced)
		if err != nil { // the file does not exist: the next writer creates it
			select {
			case <-done:
				return
			case <-ticker.C:
				continue
			}
		}
		// What was written before the watch began is not reported.
		for again := true; again; {
			if !emit() {
				return
			}
			if again, err = n.read(int32(wd)); err != nil {
				return
			}
		}
		_, _ = syscall.InotifyRmWatch(n.fd, uint32(wd)) // fails if the file is gone, which ends the watch as well
	}
}

// read waits for events. It reports whether the watch wd still is on the file
// that has the path.
func (n *inotify) read(wd int32) (valid bool, err error) {
	var buffer [64 * syscall.SizeofInotifyEvent]byte // files come without names
	size, err := n.file.Read(buffer[:])
	if err != nil {
		return false, err
	}
	for at := 0; at+syscall.SizeofInotifyEvent <= size; {
		event := (*syscall.InotifyEvent)(unsafe.Pointer(&buffer[at]))
		if event.Wd == wd && event.Mask&^syscall.IN_MODIFY != 0 {
			return false, nil
		}
		at += syscall.SizeofInotifyEvent + int(event.Len)
	}
	return true, nil
}
