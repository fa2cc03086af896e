//go:build !linux

package clock

import "time"

// suspended is zero where there is no portable way to ask: a lease then does
// not notice that the machine slept, until its next renewal is refused.
func suspended() time.Duration { return 0 }

var boottime func() time.Duration
