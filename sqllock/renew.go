package sqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// renewChunk bounds how long one renewal keeps other writers waiting.
const renewChunk = 1000

// Renew implements driver.Store. Each thousand grants are one statement.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var errs []error
	for start := 0; start < len(grants); start += renewChunk {
		chunk := grants[start:min(start+renewChunk, len(grants))]
		renewed, err := s.renewChunk(ctx, chunk)
		if err == nil && renewed == nil {
			continue
		}
		for i, grant := range chunk {
			failed := err
			if err == nil && !renewed[rowKey{grant.Name, grant.Owner.Hex()}] {
				failed = driver.ErrNotHeld
			}
			if failed != nil && errs == nil {
				errs = make([]error, len(grants))
			}
			if failed != nil {
				errs[start+i] = failed
			}
		}
	}
	return errs
}

// rowKey tells rows apart in an answer: an owner is of one acquisition only.
type rowKey struct{ name, owner string }

// renewChunk returns which grants were renewed, nil if all were.
func (s *Store) renewChunk(ctx context.Context, grants []driver.Grant) (map[rowKey]bool, error) {
	rows := make([][4]any, len(grants))
	for i, g := range grants {
		rows[i] = [4]any{g.Name, g.Owner.Hex(), g.Token, millis(g.TTL)}
	}
	// In the order in which all writers lock rows.
	slices.SortFunc(rows, func(a, b [4]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	list := encode(rows)
	var renewed map[rowKey]bool
	err := s.renewSoon(ctx, func(ctx context.Context, run runner) (err error) {
		renewed, err = s.profile.renew(ctx, run, list, len(grants))
		return err
	})
	if err != nil {
		return nil, err // renewed may be written yet
	}
	return renewed, nil
}

// renewSoon runs a renewal. Those who want a lock can wait for those who have one,
// but not the other way round: they may be waiting for a row that somebody else
// keeps locked. So a server has a connection to spare for renewals, if its others
// are in use.
func (s *Store) renewSoon(ctx context.Context, run func(context.Context, runner) error) error {
	if s.profile.renewers == 0 {
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
func renewReturning(ctx context.Context, run runner, list string, n int) (map[rowKey]bool, error) {
	keys, err := rowKeys(ctx, run, renew, list)
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
