//go:build !linux

package clock

import "time"

// suspended returns zero, since there is no portable way to ask. A lease then does
// not notice a suspension until its next renewal is refused.
func suspended() time.Duration { return 0 }

var boottime func() time.Duration
