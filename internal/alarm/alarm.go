// Package alarm calls a function at the earliest of several times.
package alarm

import (
	"context"
	"sync"
	"time"
)

// Alarm keeps the times for [Alarm.Run]. Create one with [New].
type Alarm struct {
	mu      sync.Mutex
	at      time.Time     // when Run wakes up
	earlier chan struct{} // tells Run that at moved
}

// Never is later than any time that is set.
var Never = time.Unix(1<<40, 0)

// New returns an alarm on which no time is set.
func New() *Alarm { return &Alarm{at: Never, earlier: make(chan struct{}, 1)} }

// NoLaterThan makes Run call its function at t or before. It is safe for concurrent use, and
// may be called before Run and by the function that Run calls.
func (a *Alarm) NoLaterThan(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !t.Before(a.at) {
		return
	}
	a.at = t
	select {
	case a.earlier <- struct{}{}:
	default:
	}
}

// Run calls do whenever a time that was set has come, until ctx ends. Each call uses up every
// time that was set before it: do returns when it has to be called again, or [Never].
func (a *Alarm) Run(ctx context.Context, do func(now time.Time) (next time.Time)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		a.mu.Lock()
		timer.Reset(time.Until(a.at))
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-a.earlier:
		case <-timer.C:
			a.mu.Lock()
			a.at = Never
			a.mu.Unlock()
			a.NoLaterThan(do(time.Now()))
		}
	}
}
