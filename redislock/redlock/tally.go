package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// results receives the error of a call from each member. It has room for all.
type results chan result

type result struct {
	member int
	err    error
}

// decide returns what a majority of the members answers, nil or ErrNotHeld, as soon as it has.
func (s *Store) decide(ctx context.Context, answers results) error {
	done, notHeld := 0, 0
	errs := make([]error, len(s.members))
	for range s.members {
		select {
		case got := <-answers:
			switch {
			case got.err == nil:
				done++
			case errors.Is(got.err, driver.ErrNotHeld):
				notHeld++
			default:
				errs[got.member] = got.err
			}
		case <-ctx.Done():
			return interrupted(ctx)
		}
		switch {
		case done >= s.majority:
			return nil
		case notHeld >= s.majority:
			return driver.ErrNotHeld
		}
	}
	return s.noMajority(errs)
}

// callAll calls f for all members at the same time, in the background, and returns what a
// majority answers.
func (s *Store) callAll(ctx context.Context, f func(m *member) error) error {
	answers := make(results, len(s.members))
	for i, m := range s.members {
		s.work.Go(func() { answers <- result{i, f(m)} })
	}
	return s.decide(ctx, answers)
}

const (
	slowFactor  = 20 // how many MemberTimeouts a long answer may take
	graceFactor = 2  // how many MemberTimeouts the others have when a majority has answered
)

// gather asks all members for something that may take long. It returns their answers and
// errors by member, or an error if less than a majority answered.
func gather[T any](ctx context.Context, s *Store, ask func(ctx context.Context, m *member) (T, error)) (answers []T, errs []error, err error) {
	type reply struct {
		member int
		answer T
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the calls to members that are too late
	replies := make(chan reply, len(s.members))
	for i, m := range s.members {
		s.work.Go(func() {
			answer, err := ask(ctx, m)
			replies <- reply{i, answer, err}
		})
	}
	answers = make([]T, len(s.members))
	errs = slices.Repeat([]error{errUnanswered}, len(s.members))
	var late <-chan time.Time
	answered := 0
collect:
	for range s.members {
		select {
		case got := <-replies:
			answers[got.member], errs[got.member] = got.answer, got.err
			if got.err == nil {
				answered++
			}
			if answered == s.majority && late == nil {
				late = time.After(graceFactor * s.timeout)
			}
		case <-late:
			break collect
		case <-ctx.Done():
			return nil, nil, interrupted(ctx)
		}
	}
	if answered < s.majority {
		return nil, nil, s.noMajority(errs)
	}
	return answers, errs, nil
}
