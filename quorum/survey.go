package quorum

import (
	"context"
	"time"
)

const (
	// patience is how many times the MemberTimeout a member may take for a part
	// of an answer that is long.
	patience = 20
	// grace is how many times the MemberTimeout others may take when a majority
	// has answered.
	grace = 2
)

// survey asks all members for something that is not in a hurry. It returns what
// they said or why not, by member, or an error if that is less than a majority.
func survey[T any](ctx context.Context, s *Store, ask func(ctx context.Context, m *member) (T, error)) (said []T, errs []error, err error) {
	type answer struct {
		member int
		said   T
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // those who are not waited for
	answers := make(chan answer, len(s.members))
	for i, m := range s.members {
		s.work.Go(func() {
			said, err := ask(ctx, m)
			answers <- answer{i, said, err}
		})
	}
	said = make([]T, len(s.members))
	errs = each(len(s.members), errUnanswered)
	var over <-chan time.Time
	answered := 0
collect:
	for range s.members {
		select {
		case a := <-answers:
			said[a.member], errs[a.member] = a.said, a.err
			if a.err == nil {
				answered++
			}
			if answered == s.rules.majority && over == nil {
				over = time.After(grace * s.timeout)
			}
		case <-over:
			break collect
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	if answered < s.rules.majority {
		return nil, nil, s.unreachable(answered, errs)
	}
	return said, errs, nil
}
