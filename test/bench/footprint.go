package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"
)

// footprint is the memory that this process uses.
type footprint struct{ heap, stack int64 }

// measurable is the number of locks or waiters whose memory stands out from that
// of the rest of the process.
const measurable = 1000

// footprintNow collects garbage several times first, because each collection
// shrinks a stack by half at most.
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

// each returns the bytes of one of n.
func (f footprint) each(n int) float64 { return float64(f.heap+f.stack) / float64(n) }

// parked returns the footprint of n goroutines that wait for a channel.
func parked(ctx context.Context, n int) (footprint, error) {
	before, waiting := footprintNow(), waitingGoroutines()
	var group sync.WaitGroup
	defer group.Wait()
	blocked := make(chan struct{})
	defer close(blocked)
	for range n {
		group.Go(func() { <-blocked })
	}
	if err := untilWaiting(ctx, waiting+n); err != nil {
		return footprint{}, err
	}
	return footprintNow().minus(before), nil
}

// waitingGoroutines returns the scheduler's number of waiting goroutines.
func waitingGoroutines() int {
	sample := []metrics.Sample{{Name: "/sched/goroutines/waiting:goroutines"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// untilWaiting blocks until about n goroutines wait. Some goroutines that waited
// before, such as a client's own, may have ended.
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

// cpuTime returns the CPU time of this process so far, on all cores.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // cannot fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
