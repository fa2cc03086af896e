package clock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic, clockBoottime = 1, 7 // the second includes suspension

// suspended returns how long the machine was suspended since it was booted. It cannot
// read both clocks at one instant. If the readings took long, because this thread was
// interrupted, it reads again.
func suspended() time.Duration {
	for try := 0; ; try++ {
		before := read(clockMonotonic)
		boot := read(clockBoottime)
		after := read(clockMonotonic)
		if after-before < 100*time.Microsecond || try == 10 {
			return boot - after
		}
	}
}

func boottime() time.Duration { return read(clockBoottime) }

func read(id uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
