//go:build !linux

package supervise

import (
	"os"
	"time"
)

// Executable returns the path of this program.
func Executable() (string, error) { return os.Executable() }

var started = time.Now()

func uptime() time.Duration { return time.Since(started) }
