package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Members returns the processes that work in dir. A server may be several
// processes: PostgreSQL's children are in process groups of their own and outlive
// their parent for a moment. They share their working directory.
func Members(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for the processes of a server: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err != nil {
			continue // ended in the meantime, or of another user
		}
		if cwd == dir || strings.HasPrefix(cwd, dir+"/") || cwd == dir+" (deleted)" {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// SignalAll signals every process in dir. It repeats until it finds no new
// process, since a process may have forked meanwhile.
func SignalAll(dir string, signal syscall.Signal) error {
	reached := make(map[int]bool)
	for {
		pids, err := Members(dir)
		if err != nil {
			return err
		}
		news := false
		for _, pid := range pids {
			if reached[pid] {
				continue
			}
			reached[pid], news = true, true
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("signal %v to process %d: %w", signal, pid, err)
			}
		}
		if !news {
			return nil
		}
	}
}
