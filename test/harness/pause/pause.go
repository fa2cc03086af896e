// Package pause stops processes where they stand. The kernel tells one thread of a
// process that it was sent SIGSTOP, and that thread the others: on a busy machine
// some go on for a while, and answer.
package pause

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// limit is how long a thread may go on: until it is interrupted.
const limit = 5 * time.Second

// Process returns when every thread of the process has stopped.
func Process(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing process %d: %w", pid, err)
	}
	return Await(pid)
}

// Await is for a process that was sent SIGSTOP already.
func Await(pid int) error {
	for end := time.Now().Add(limit); ; <-time.After(time.Millisecond) {
		running, err := running(pid)
		if err != nil || running == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("pausing process %d: %d threads go on", pid, running)
		}
	}
}

// running counts the threads that have not stopped.
func running(pid int) (n int, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("pausing process %d: it has no threads (%v)", pid, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ...", and the name may be anything
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			n++
		}
	}
	return n, nil
}
