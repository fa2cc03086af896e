package deadline

import (
	"cmp"
	"context"
	"time"
)

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
