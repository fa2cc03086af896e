// Package pause stops processes completely. The kernel delivers SIGSTOP to one
// thread of a process, and that thread stops the others. On a busy machine some
// threads run on for a while after the signal was sent.
package pause

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// limit bounds the time until all threads have stopped.
const limit = 5 * time.Second

// Process sends SIGSTOP and returns when every thread of the process has stopped.
func Process(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pausing process %d: %w", pid, err)
	}
	return Await(pid)
}

// Await returns when every thread of a process that was sent SIGSTOP has stopped.
func Await(pid int) error {
	for end := time.Now().Add(limit); ; <-time.After(time.Millisecond) {
		running, err := running(pid)
		if err != nil || running == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("pausing process %d: %d threads still run", pid, running)
		}
	}
}

// running counts the threads that have not stopped.
func running(pid int) (n int, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, fmt.Errorf("pausing process %d: no threads found", pid)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		// The format is "pid (name) state ...". The name may contain anything.
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			n++
		}
	}
	return n, nil
}
