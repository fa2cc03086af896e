package drivertest_test

import (
	"context"
	"iter"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes with the tokens of a step, one a store.

// promisesStep promises far more tokens than it sets aside, and than clauses that run at the same time
// draw from the counter of all names: otherwise they would hide the mistake.
type promisesStep struct{ *memlock.Store }

func (s promisesStep) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.TokenStep = 1 << 40
	return traits
}

// forgetsGrant grants other tokens to an owner that asks again.
type forgetsGrant struct {
	*memlock.Store
	holder *shelf[driver.Owner]
}

func (s forgetsGrant) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil && s.holder.get(req.Name) == req.Owner {
		grant.Token++
	}
	s.holder.put(req.Name, grant.Owner)
	return grant, err
}

// listsAnother lists a token outside of the step.
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

// breaksFirst knows a grant by its first token alone.
type breaksFirst struct{ *memlock.Store }

func (s breaksFirst) Break(ctx context.Context, name string, token uint64) error {
	for info := range s.List(ctx, name) {
		if info.Name == name && info.Token == token {
			return s.Store.Break(ctx, name, token)
		}
	}
	return driver.ErrNotHeld
}
