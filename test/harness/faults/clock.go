package faults

import "golang.org/x/sys/unix"

// monotonic is a clock in nanoseconds that all processes of this machine share
// and that nobody sets.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has this clock
	}
	return ts.Nano()
}
