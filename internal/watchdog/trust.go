package watchdog

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
)

// DefaultMargin compensates for clocks that run at different speeds here and in
// the store, and for the time it takes to act on a loss: 1 % and 2 ms, the drift
// that Redlock implementations agree on.
func DefaultMargin(ttl time.Duration) time.Duration {
	return LimitMargin(ttl, ttl/100+2*time.Millisecond)
}

// LimitMargin cuts a margin to a third of the TTL. Renewals begin after a third,
// so that a third is always left to try.
func LimitMargin(ttl, margin time.Duration) time.Duration { return min(margin, ttl/3) }

// trustDeadline counts from the instant at which the acquisition or renewal was
// sent, not from its answer.
func trustDeadline(sent clock.Instant, ttl, margin time.Duration) clock.Instant {
	return sent + ttl - margin
}

// interval is the time between two renewals that succeed.
func interval(ttl time.Duration) time.Duration { return ttl / 3 }

// early is how much earlier a hold is renewed if another hold is due: one call
// for both is worth more than exact spacing.
func early(ttl time.Duration) time.Duration { return interval(ttl) / 10 }

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
