package faults

import "golang.org/x/sys/unix"

// monotonic returns the time in nanoseconds of a clock that all processes of this
// machine share and that cannot be set.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has this clock
	}
	return ts.Nano()
}
