package drivertest_test

import (
	"context"
	"iter"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes with spans of tokens, one a store.

// promisesSpan sets one token aside, and promises far more than clauses that run at the same time draw
// from the counter of all names: otherwise they would hide the mistake.
type promisesSpan struct{ *memlock.Store }

func (s promisesSpan) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Span = 0
	grant, err := s.Store.Acquire(ctx, req)
	grant.Span = 1 << 40
	return grant, err
}

func (s promisesSpan) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	grant.Span = 1
	return s.Store.RaiseToken(ctx, grant, token)
}

// countsBack raises its counter by one, and grants the span that ends there.
type countsBack struct{ *memlock.Store }

func (s countsBack) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	span := max(1, req.Span)
	req.Span = 0
	grant, err := s.Store.Acquire(ctx, req)
	grant.Token, grant.Span = grant.Token-span+1, span
	return grant, err
}

// forgetsSpan grants other tokens to an owner that asks again.
type forgetsSpan struct{ *memlock.Store }

func (s forgetsSpan) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	first := true
	for info := range s.List(ctx, req.Name) {
		first = first && info.Name != req.Name
	}
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil && !first {
		grant.Token, grant.Span = grant.Token+max(1, req.Span)-1, 1
	}
	return grant, err
}

// listsAnother lists a token outside of the span.
type listsAnother struct{ *memlock.Store }

func (s listsAnother) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix) {
			if info.Token--; !yield(info, err) {
				return
			}
		}
	}
}
