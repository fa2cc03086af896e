// Package backoff spaces attempts out: each delay is about twice the one
// before, up to a limit, and random, so that those who were stopped by the same
// event do not come back together.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Backoff yields delays. The zero value is not usable: set both limits.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Next returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration {
	b.next = min(max(2*b.next, b.Min), b.Max)
	return Jitter(b.next)
}

// Reset begins again with the shortest delay.
func (b *Backoff) Reset() { b.next = 0 }

// Jitter returns a random duration from three quarters of d to five quarters.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/4 + rand.N(d/2+1)
}
