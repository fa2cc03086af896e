package sqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
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

// renewChunk returns one error per grant, nil where it was renewed; or nil if all were.
func (s *Store) renewChunk(ctx context.Context, grants []driver.Grant) []error {
	if s.dialect.renewers > 0 {
		return s.renewAmongRows(ctx, grants)
	}
	errs := make([]error, len(grants))
	err := s.do(ctx, "renew", &batch.Job{Urgent: true, Run: func(ctx context.Context, run statement.Runner) error {
		clear(errs) // of a run that was undone
		return s.renewRows(ctx, run, statement.Renew, grants, indexes(len(grants)), errs)
	}})
	if err != nil { // the job may still set errs
		return slices.Repeat([]error{err}, len(grants))
	}
	return errs
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// renewAmongRows renews where other transactions may keep rows locked. A row that is locked
// must not cost the holder its other locks. So the statement for all waits for no row. If
// it fails, each grant is renewed by itself, and only grants whose rows are locked wait.
func (s *Store) renewAmongRows(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	left := indexes(len(grants)) // grants whose outcome is not known
	err := s.renewSoon(ctx, func(run statement.Runner) (err error) {
		if len(left) > 1 {
			if err = s.renewRows(ctx, run, statement.RenewAtOnce, grants, left, errs); err == nil || !s.facts.Classify(err).Retry {
				return err
			}
			if left, err = s.renewEach(ctx, run, grants, left, errs); err != nil || len(left) == 0 {
				return err
			}
		}
		return s.renewRows(ctx, run, statement.Renew, grants, left, errs)
	})
	if err != nil {
		for _, i := range left {
			errs[i] = err
		}
	}
	return errs
}

// renewEach renews one grant at a time. It returns the grants whose rows are locked, and
// after an error also the grants that it did not reach.
func (s *Store) renewEach(ctx context.Context, run statement.Runner, grants []driver.Grant, which []int, errs []error) (left []int, err error) {
	for n, i := range which {
		err := s.renewRows(ctx, run, statement.RenewAtOnce, grants, []int{i}, errs)
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

// renewRows renews some of the grants by one statement. Errs gets ErrNotHeld for each that
// was not renewed.
func (s *Store) renewRows(ctx context.Context, run statement.Runner, id statement.ID, grants []driver.Grant, which []int, errs []error) error {
	rows := make([][4]any, len(which))
	for n, i := range which {
		g := &grants[i]
		rows[n] = [4]any{g.Name, g.Owner.Hex(), lastToken(g), millis(g.TTL)}
	}
	// In the order in which all writers lock rows.
	slices.SortFunc(rows, func(a, b [4]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	renewed, err := s.dialect.renew(ctx, run, id, sqldb.JSON(rows), len(rows))
	if err != nil || renewed == nil {
		return err
	}
	for _, i := range which {
		if !renewed[statement.Key{Name: grants[i].Name, Owner: grants[i].Owner.Hex()}] {
			errs[i] = driver.ErrNotHeld
		}
	}
	return nil
}

// renewSoon runs a renewal. A holder must not wait for waiters, which may wait for a row that
// another transaction keeps locked. So renewals have a connection to spare while all others
// are in use.
func (s *Store) renewSoon(ctx context.Context, renew func(statement.Runner) error) error {
	if err := ended(ctx, "renew"); err != nil {
		return err
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
			return s.explain(ctx, "renew", ctx.Err())
		}
	}
	defer func() { <-slots }()
	return s.runExplained(ctx, "renew", func() error { return renew(s.run()) })
}
