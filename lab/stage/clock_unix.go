//go:build unix

package stage

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time of all processes of this machine, which no change of the wall
// clock moves.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every system has this clock
	}
	return time.Duration(ts.Nano())
}
