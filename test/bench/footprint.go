package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"syscall"
	"time"
)

// footprint is the memory that this process uses.
type footprint struct {
	heap, stack int64
}

// footprintNow collects garbage first, several times, because each collection
// halves a stack that is too large at most once.
func footprintNow() footprint {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{int64(m.HeapAlloc), int64(m.StackInuse)}
}

func (f footprint) minus(g footprint) footprint {
	return footprint{f.heap - g.heap, f.stack - g.stack}
}

// waitingGoroutines asks the scheduler how many goroutines wait for something.
func waitingGoroutines() int {
	sample := []metrics.Sample{{Name: "/sched/goroutines/waiting:goroutines"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// untilWaiting waits until so many goroutines wait, or nearly: some of those that
// waited before, such as a client's own, may have ended.
func untilWaiting(ctx context.Context, n int) error {
	const ended = 16
	n -= ended
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for waitingGoroutines() < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("only %d of %d goroutines wait: %w", waitingGoroutines(), n, context.Cause(ctx))
		}
	}
	return nil
}

// cpuTime is what this process has used so far, of all cores.
func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
