package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Measure is what a process needs while it is idle.
type Measure struct {
	Goroutines  int    `json:"goroutines"`
	Connections int    `json:"connections"`
	Heap        uint64 `json:"heap"` // bytes
}

func (m Measure) String() string {
	return fmt.Sprintf("%d goroutines, %d connections, %.1f MB", m.Goroutines, m.Connections, float64(m.Heap)/1e6)
}

// What a process may need more at the end than at the start: pools of connections grow while
// connections break, and shrink later, and a pool of workers keeps up to 64 that are idle. A leak
// grows with the length of the soak.
const (
	moreGoroutines  = 100
	moreConnections = 20 // to each server: as many as a pool has on two cores
	moreHeap        = 16 << 20
	settle          = 500 * time.Millisecond
)

// measure waits until the process is idle and measures it.
func measure() Measure {
	time.Sleep(settle)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	m := Measure{Goroutines: runtime.NumGoroutine(), Heap: memory.HeapAlloc}
	files, _ := filepath.Glob("/proc/self/fd/*") // the pattern is valid
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
			m.Connections++
		}
	}
	return m
}

// growth says what has grown more than it may, with that many servers.
func (m Measure) growth(start Measure, servers int) []string {
	var grown []string
	if m.Goroutines > start.Goroutines+moreGoroutines {
		grown = append(grown, "goroutines")
	}
	if m.Connections > start.Connections+moreConnections*max(1, servers) {
		grown = append(grown, "connections")
	}
	if m.Heap > start.Heap+moreHeap {
		grown = append(grown, "memory")
	}
	return grown
}

// memory returns the resident memory of this process in bytes.
func memory() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * uint64(os.Getpagesize())
}
