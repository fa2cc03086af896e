package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// returns counts what members say to something that all of them are told to do.
type returns struct {
	s       *Store
	results chan result // has room for all
}

type result struct {
	member int
	err    error
}

func (s *Store) newReturns() *returns {
	return &returns{s: s, results: make(chan result, len(s.members))}
}

func (r *returns) report(i int, err error) { r.results <- result{i, err} }

// wait returns what a majority says, nil or ErrNotHeld, as soon as it has. Members
// keep to their limits themselves; the limit here is for one that does not.
func (r *returns) wait(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done, gone := 0, 0
	errs := make([]error, len(r.s.members))
	for range r.s.members {
		select {
		case got := <-r.results:
			switch {
			case got.err == nil:
				done++
			case errors.Is(got.err, driver.ErrNotHeld):
				gone++
			default:
				errs[got.member] = got.err
			}
		case <-timer.C:
			return errUnanswered
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case done >= r.s.rules.majority:
			return nil
		case gone >= r.s.rules.majority:
			return driver.ErrNotHeld
		}
	}
	return r.s.unreachable(done+gone, errs)
}
