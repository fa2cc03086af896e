//go:build !linux

package stores

import "time"

// openLimit is how long opening a store may take, with all its round trips.
const openLimit = 15 * time.Second

// sinceAnswer returns false: it is not known on this system.
func sinceAnswer() (time.Duration, bool) { return 0, false }
