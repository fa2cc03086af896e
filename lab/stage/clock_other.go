//go:build !unix

package stage

import "time"

// Now is the wall clock.
func Now() time.Duration { return time.Duration(time.Now().UnixNano()) }
