// Package deadline bounds the time of calls at little cost.
package deadline

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Context behaves like the context of context.WithTimeout, but without a cause. It starts its
// timer only when Done is called, which most calls return too early to need.
type Context struct {
	context.Context // the parent
	at              time.Time

	mu    sync.Mutex
	timer context.Context // nil until Done is called
	stop  context.CancelFunc
	ended bool
}

// After returns a context that ends after d, or with its parent. The caller must call
// End.
func After(parent context.Context, d time.Duration) *Context {
	at := time.Now().Add(d)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	return &Context{Context: parent, at: at}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.at, true }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		c.timer, c.stop = context.WithDeadline(withoutCause{c.Context}, c.at)
		if c.ended {
			c.stop()
		}
	}
	return c.timer.Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timer != nil:
		return c.timer.Err()
	case c.ended:
		return context.Canceled
	case c.Context.Err() != nil:
		return c.Context.Err()
	case !time.Now().Before(c.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	timer := c.timer
	c.mu.Unlock()
	if timer != nil { // package context finds its own types this way
		return timer.Value(key)
	}
	return withoutCause{c.Context}.Value(key)
}

// WithoutCause returns a context that ends with ctx, and whose cause is what its Err returns. A store
// returns the cause as its error. That of a caller may be an error of another lock, such as ErrHeld,
// and would look like an answer of the store.
func WithoutCause(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return withoutCause{ctx}
}

type withoutCause struct{ context.Context }

// Value hides from package context what it finds the cause by.
func (w withoutCause) Value(key any) any { return context.WithoutCancel(w.Context).Value(key) }

// AfterFunc is what package context then uses instead of a goroutine.
func (w withoutCause) AfterFunc(f func()) func() bool { return context.AfterFunc(w.Context, f) }

// End cancels the context and frees its timer. A nil Context has nothing to end.
func (c *Context) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.stop != nil {
		c.stop()
	}
}

// Passed returns the cause of a context that is done or whose deadline has passed, and
// nil for any other context. A connection with the same deadline may notice it a moment
// before the context does.
func Passed(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if at, limited := ctx.Deadline(); !limited || time.Now().Before(at) {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(moment):
	}
	return cmp.Or(context.Cause(ctx), context.DeadlineExceeded)
}

// moment is how late a context may end on a busy machine.
const moment = 100 * time.Millisecond
