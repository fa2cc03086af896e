package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/backoff"
)

const (
	answerLimit = dlock.DefaultRequestTimeout // how long a store may take to answer
	endSlack    = 50 * time.Millisecond       // how long before the deadline of its context a call may fail
)

// ErrNoAnswer returns the cause with which a limit ends a context.
func ErrNoAnswer(limit time.Duration) error {
	return fmt.Errorf("%w: no answer within %v", dlock.ErrUnreachable, limit)
}

// UntilFirstAnswer bounds the first call to a store. An earlier deadline of ctx stays.
func UntilFirstAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerLimit, ErrNoAnswer(answerLimit))
}

// untilNoAnswer returns a context that ends when the store has not answered for limit.
func untilNoAnswer(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for left := limit; left > 0; {
			if backoff.Sleep(ctx, left) != nil {
				return
			}
			left = 0
			if ago, found := sinceAnswer(); found {
				left = limit - ago
			}
		}
		cancel(ErrNoAnswer(limit))
	}()
	return ctx, func() { cancel(nil) }
}

// IsSlow reports whether a store has answered within answerLimit: a request without an answer
// is then late, not lost.
func IsSlow() bool {
	ago, found := sinceAnswer()
	return found && ago < answerLimit
}

// RetryIfSlow calls f, and once more if connecting to a slow store may have taken all the time.
func RetryIfSlow(ctx context.Context, f func() error) error {
	err := f()
	if errors.Is(err, dlock.ErrUnreachable) && ctx.Err() == nil && IsSlow() {
		err = f()
	}
	return err
}

// Ended reports whether ctx is done. A call may notice the deadline of its context a
// moment before the context does; then Ended waits for the end.
func Ended(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < endSlack {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// Ping returns an error if the store does not answer within answerLimit. It precedes
// calls that read a whole store, which may take longer.
func Ping(ctx context.Context, client *dlock.Client) error {
	return RetryIfSlow(ctx, func() error {
		bounded, cancel := UntilFirstAnswer(ctx)
		defer cancel()
		_, _, err := client.Find(bounded, "dlock")
		switch {
		case err == nil || ctx.Err() != nil:
			return ctx.Err()
		case Ended(bounded):
			return context.Cause(bounded)
		case errors.Is(err, dlock.ErrUnreachable):
			if inner := errors.Unwrap(err); errors.Is(inner, dlock.ErrUnreachable) {
				return inner // without the name, which the user did not give
			}
			return err
		}
		return nil // any other error is an answer
	})
}
