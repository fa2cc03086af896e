package sqllock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/share"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// renewChunk bounds how long one renewal keeps other writers waiting.
const renewChunk = 1000

// Renew implements driver.Store. Each thousand exclusive locks are one statement, unless another
// transaction keeps one of their rows locked. Shares are renewed in transactions.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var exclusive, shares []int
	for i := range grants {
		if isListed(&grants[i]) || s.downgraded.has(grants[i].Owner) {
			shares = append(shares, i)
		} else {
			exclusive = append(exclusive, i)
		}
	}
	errs := make([]error, len(grants))
	for which := range slices.Chunk(exclusive, renewChunk) {
		s.renewExclusive(ctx, grants, which, errs)
	}
	for _, i := range exclusive { // a downgrade may have come between
		if errors.Is(errs[i], driver.ErrNotHeld) && s.downgraded.has(grants[i].Owner) {
			shares = append(shares, i)
		}
	}
	if len(shares) > 0 {
		s.renewShares(ctx, grants, shares, errs)
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// renewExclusive renews some of the grants. Errs gets their errors. On a server other transactions may
// keep rows locked. A row that is locked must not cost the holder its other locks. So the statement
// for all waits for no row. If it fails, each grant is renewed by itself, and only grants whose rows are
// locked wait. MySQL cannot limit a statement in this way: there each waits for innodb_lock_wait_timeout.
func (s *Store) renewExclusive(ctx context.Context, grants []driver.Grant, which []int, errs []error) {
	pending := which // grants whose outcome is not known
	run := s.run()
	err := s.renewSoon(ctx, func() (err error) {
		if len(pending) > 1 && s.dialect.renewers > 0 {
			if err = s.renewRows(ctx, run, statement.RenewAtOnce, grants, pending, errs); err == nil || !s.facts.Classify(err).Retry {
				return err
			}
			if pending, err = s.renewEach(ctx, run, grants, pending, errs); err != nil || len(pending) == 0 {
				return err
			}
		}
		return s.renewRows(ctx, run, statement.Renew, grants, pending, errs)
	})
	if err != nil {
		for _, i := range pending {
			errs[i] = err
		}
	}
}

// renewEach renews one grant at a time. It returns the grants whose rows are locked, and
// after an error also the grants that it did not reach.
func (s *Store) renewEach(ctx context.Context, run statement.Runner, grants []driver.Grant, which []int, errs []error) (pending []int, err error) {
	for n, i := range which {
		err := s.renewRows(ctx, run, statement.RenewAtOnce, grants, []int{i}, errs)
		switch {
		case err == nil:
		case s.facts.Classify(err).Retry:
			pending = append(pending, i)
		default:
			return append(pending, which[n:]...), err
		}
	}
	return pending, nil
}

// renewRows renews some of the grants by one statement. Errs gets ErrNotHeld for each that
// was not renewed.
func (s *Store) renewRows(ctx context.Context, run statement.Runner, id statement.ID, grants []driver.Grant, which []int, errs []error) error {
	rows := make([][4]any, len(which))
	for n, i := range which {
		g := &grants[i]
		rows[n] = [4]any{g.Name, g.Owner.Hex(), lastToken(g), millis(g.TTL)}
	}
	// In one order, so that deadlocks are rare. They are tried again.
	slices.SortFunc(rows, func(a, b [4]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	renewed, err := run.Renew(ctx, id, sqldb.JSON(rows), len(rows))
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
func (s *Store) renewSoon(ctx context.Context, renew func() error) error {
	return s.withConn(ctx, s.writing, s.renewing, "renew", renew)
}

// shareChunk is how many names one transaction renews. On a server each takes a round trip, and the
// rows stay locked until the last one.
const shareChunk = 50

// shareRenewal renews shares of locks by name.
type shareRenewal struct {
	store  *Store
	grants []driver.Grant
	byName map[string][]int // indexes of grants
	failed map[string]error // why the outcome of a name is not known; nil if it is known

	// By grant, of a transaction that was committed:
	errs       []error
	downgraded []bool // the renewal has completed a downgrade
}

// renewShares renews the shares of some of the grants. Errs gets one error for each of them, nil
// where it was renewed.
func (s *Store) renewShares(ctx context.Context, grants []driver.Grant, which []int, errs []error) {
	r := &shareRenewal{store: s, grants: grants, byName: make(map[string][]int), failed: make(map[string]error),
		errs: make([]error, len(grants)), downgraded: make([]bool, len(grants))}
	for _, i := range which {
		r.byName[grants[i].Name] = append(r.byName[grants[i].Name], i)
	}
	names := slices.Sorted(maps.Keys(r.byName)) // so that deadlocks are rare
	r.renewAll(ctx, names)
	for name, all := range r.byName {
		for _, i := range all {
			if errs[i] = r.failed[name]; errs[i] != nil {
				continue
			}
			errs[i] = r.errs[i] // no job sets it any more
			switch {
			case errs[i] != nil: // it is not held
				s.downgraded.remove(grants[i].Owner)
			case r.downgraded[i]:
				s.waiters.notify(name)
			}
		}
	}
}

// renewAll renews names in transactions that wait for no row. Then each pending name, whose row is
// locked or missing, has a transaction of its own, which waits.
func (r *shareRenewal) renewAll(ctx context.Context, names []string) {
	s := r.store
	var pending []string
	for chunk := range slices.Chunk(names, shareChunk) {
		var skipped []string
		err := s.renewSoon(ctx, func() error {
			return s.inTx(ctx, func(run statement.Runner) (err error) {
				skipped, err = r.renewUnlocked(ctx, run, chunk)
				return err
			})
		})
		r.setFailed(chunk, err)
		if err == nil {
			pending = append(pending, skipped...)
		}
	}
	for start := time.Now(); len(pending) > 0; {
		var locked []string
		for _, name := range pending {
			var reason error
			err := s.renewSoon(ctx, func() error {
				reason = s.inTx(ctx, func(run statement.Runner) error { return r.renewOne(ctx, run, name) })
				if s.isRetryable(reason) && time.Since(start) < busyLimit {
					return nil // the other names come first
				}
				return reason
			})
			r.setFailed([]string{name}, err)
			if err == nil && reason != nil {
				locked = append(locked, name)
			}
		}
		if pending = locked; len(pending) > 0 {
			_ = backoff.Sleep(ctx, busyPause) // its end is noticed by the next round
		}
	}
}

// setFailed records why the outcome of names is not known; nil means that it is known.
func (r *shareRenewal) setFailed(names []string, err error) {
	for _, name := range names {
		r.failed[name] = err
	}
}

// renewUnlocked renews the names whose rows it can lock at once, and returns the others.
func (r *shareRenewal) renewUnlocked(ctx context.Context, run statement.Runner, names []string) (pending []string, err error) {
	locks, err := readRows(ctx, run, statement.LockRows, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		lock := locks[name]
		if lock == nil {
			pending = append(pending, name)
		} else if err := r.renew(ctx, run, name, lock); err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// renewOne renews a name when it can lock its row.
func (r *shareRenewal) renewOne(ctx context.Context, run statement.Runner, name string) error {
	lock, _, err := readRow(ctx, run, statement.LockRow, &driver.Request{Name: name})
	if err != nil {
		return err
	}
	return r.renew(ctx, run, name, cmp.Or(lock, &share.Lock{}))
}

// renew renews the shares of a name whose row is locked, and writes the row. If the outcome of a
// downgrade is unknown and the lock is still exclusive, renew completes the downgrade.
func (r *shareRenewal) renew(ctx context.Context, run statement.Runner, name string, lock *share.Lock) error {
	renewed, save := false, statement.SaveRow
	for _, i := range r.byName[name] {
		g := &r.grants[i]
		owner := g.Owner.Hex()
		completes := !isListed(g) && lock.Mode == (driver.Mode{}) && lock.Downgrade(owner)
		r.errs[i], r.downgraded[i] = driver.ErrNotHeld, false
		if lock.Renew(owner, lastToken(g), millis(g.TTL)) {
			r.errs[i], r.downgraded[i], renewed = nil, completes, true
			if completes {
				save = statement.SaveFreed
			}
		}
	}
	if !renewed {
		return nil
	}
	return saveRow(ctx, run, save, name, lock)
}
