package sqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// renewChunk bounds how long one renewal keeps other writers waiting.
const renewChunk = 1000

// Renew implements driver.Store. Each thousand grants are one statement, unless
// another transaction keeps one of their rows locked.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var errs []error
	for start := 0; start < len(grants); start += renewChunk {
		chunk := grants[start:min(start+renewChunk, len(grants))]
		for i, err := range s.renewChunk(ctx, chunk) {
			if err != nil && errs == nil {
				errs = make([]error, len(grants))
			}
			if err != nil {
				errs[start+i] = err
			}
		}
	}
	return errs
}

// rowKey tells rows apart in an answer: an owner is of one acquisition only.
type rowKey struct{ name, owner string }

// renewChunk returns one error per grant, nil where it was renewed; or nil if all were.
func (s *Store) renewChunk(ctx context.Context, grants []driver.Grant) []error {
	if s.dialect.renewers > 0 {
		return s.renewAmongRows(ctx, grants)
	}
	list := renewalList(grants)
	var renewed map[rowKey]bool
	err := s.renewSoon(ctx, func(ctx context.Context, run runner) (err error) {
		renewed, err = s.dialect.renew(ctx, run, renew, list, len(grants))
		return err
	})
	switch {
	case err != nil: // renewed may be written yet
		return slices.Repeat([]error{err}, len(grants))
	case renewed == nil:
		return nil
	}
	errs := make([]error, len(grants))
	for _, i := range missing(grants, renewed) {
		errs[i] = driver.ErrNotHeld
	}
	return errs
}

// renewalList is what a renewal takes.
func renewalList(grants []driver.Grant) string {
	rows := make([][4]any, len(grants))
	for i, g := range grants {
		rows[i] = [4]any{g.Name, g.Owner.Hex(), g.Token, millis(g.TTL)}
	}
	// In the order in which all writers lock rows.
	slices.SortFunc(rows, func(a, b [4]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	return encode(rows)
}

// missing returns the indexes of grants that are not in the answer.
func missing(grants []driver.Grant, renewed map[rowKey]bool) (indexes []int) {
	for i, grant := range grants {
		if !renewed[rowKey{grant.Name, grant.Owner.Hex()}] {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// renewAmongRows renews where others may keep rows locked. One row that is locked
// must not cost the holder its other locks: so the statement for all waits for no
// row, if it fails each grant is renewed by itself, and only those whose rows are
// locked wait.
func (s *Store) renewAmongRows(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	left := make([]int, len(grants)) // whose outcome is not known
	for i := range left {
		left[i] = i
	}
	err := s.renewSoon(ctx, func(ctx context.Context, run runner) (err error) {
		if len(left) > 1 {
			if err = s.renewRows(ctx, run, renewAtOnce, grants, left, errs); err == nil || !s.facts.Classify(err).Retry {
				return err
			}
			if left, err = s.renewEach(ctx, run, grants, left, errs); err != nil || len(left) == 0 {
				return err
			}
		}
		return s.renewRows(ctx, run, renew, grants, left, errs)
	})
	if err != nil {
		for _, i := range left {
			errs[i] = err
		}
	}
	return errs
}

// renewEach renews one grant at a time, and returns those whose rows are locked, and
// after an error also those that it did not come to.
func (s *Store) renewEach(ctx context.Context, run runner, grants []driver.Grant, which []int, errs []error) (left []int, err error) {
	for n, i := range which {
		err := s.renewRows(ctx, run, renewAtOnce, grants, []int{i}, errs)
		switch {
		case err == nil:
		case s.facts.Classify(err).Retry:
			left = append(left, i)
		default:
			return append(left, which[n:]...), err
		}
	}
	return left, nil
}

// renewRows renews some of the grants by one statement.
func (s *Store) renewRows(ctx context.Context, run runner, stmt statement, grants []driver.Grant, which []int, errs []error) error {
	some := make([]driver.Grant, len(which))
	for n, i := range which {
		some[n] = grants[i]
	}
	renewed, err := s.dialect.renew(ctx, run, stmt, renewalList(some), len(some))
	if err != nil || renewed == nil {
		return err
	}
	for _, n := range missing(some, renewed) {
		errs[which[n]] = driver.ErrNotHeld
	}
	return nil
}

// renewSoon runs a renewal. Those who want a lock can wait for those who have one,
// but not the other way round: they may be waiting for a row that somebody else
// keeps locked. So a server has a connection to spare for renewals, if its others
// are in use.
func (s *Store) renewSoon(ctx context.Context, run func(context.Context, runner) error) error {
	if s.dialect.renewers == 0 {
		return s.together(ctx, "renew", &job{urgent: true, run: run})
	}
	var slots chan struct{}
	select {
	case s.writing <- struct{}{}:
		slots = s.writing
	default:
		select {
		case s.writing <- struct{}{}:
			slots = s.writing
		case s.renewing <- struct{}{}:
			slots = s.renewing
		case <-ctx.Done():
			return s.fail(ctx, "renew", ctx.Err())
		}
	}
	defer func() { <-slots }()
	return s.perform(ctx, "renew", func() error { return run(ctx, s.each()) })
}

// renewReturning is for databases that answer an update with its rows.
func renewReturning(ctx context.Context, run runner, s statement, list string, n int) (map[rowKey]bool, error) {
	keys, err := rowKeys(ctx, run, s, list)
	if len(keys) == n {
		return nil, err
	}
	return keys, err
}

// rowKeys collects the answer of a statement. It is not nil unless there is an error.
func rowKeys(ctx context.Context, run runner, s statement, list string) (map[rowKey]bool, error) {
	keys := make(map[rowKey]bool)
	err := run.each(ctx, s, []any{list}, func(scan func(...any) error) error {
		var key rowKey
		err := scan(&key.name, &key.owner)
		keys[key] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}
