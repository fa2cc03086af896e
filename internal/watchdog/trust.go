package watchdog

import (
	"math/rand/v2"
	"time"
)

// Margin returns how long before the end of its TTL a hold counts as lost: what the
// caller asked for or, if that is negative, 1 % and 2 ms, the drift that Redlock
// implementations agree on. It is at most a third of the TTL. Renewals begin after
// a third, so that a third is always left to try.
func Margin(ttl, asked time.Duration) time.Duration {
	if asked < 0 {
		asked = ttl/100 + 2*time.Millisecond
	}
	return min(asked, ttl/3)
}

// Limits of the delay before a renewal of unknown outcome is tried again.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = 5 * time.Second
)

// retryDelay is a fraction of the time until the trust deadline, so that attempts
// get denser towards it, with jitter that keeps clients apart.
func retryDelay(left time.Duration) time.Duration {
	delay := min(max(left/8, minRetry), maxRetry)
	return delay/2 + rand.N(delay)
}
