// Package backoff spaces attempts out. Each delay is about twice the one before, up to a
// limit, and random, so that callers that the same event stopped do not return together.
package backoff

import (
	"context"
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

// Wait blocks for the next delay. If ctx ends first, Wait returns its cause.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Jitter returns a random duration from three quarters of d to five quarters.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d - d/4 + rand.N(d/2+1)
}

// MaxJitter returns the longest duration that Jitter returns for d.
func MaxJitter(d time.Duration) time.Duration { return d - d/4 + d/2 }

// Sleep blocks for d. If ctx ends first, Sleep returns its cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
