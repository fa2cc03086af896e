// Package detach lets a caller leave a call that cannot be interrupted. The call goes on,
// because its outcome decides what has to be undone.
package detach

import "context"

// Call starts f with start and waits until f returns or ctx ends. If ctx ends first, Call
// returns its cause and f goes on: the caller must not read what f writes. If ctx cannot
// end, Call runs f itself and never calls start.
func Call[T any](ctx context.Context, start func(func()), f func() T) (result T, err error) {
	if ctx.Done() == nil {
		return f(), nil
	}
	done := make(chan T, 1)
	start(func() { done <- f() })
	select {
	case result = <-done:
		return result, nil
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// Go starts f in a goroutine of its own: the start of a Call without a pool.
func Go(f func()) { go f() }
