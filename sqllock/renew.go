package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// renewChunk bounds how long one renewal keeps other writers waiting.
const renewChunk = 1000

// Renew implements driver.Store. Each thousand exclusive locks are one statement, unless another
// transaction keeps one of their rows locked. Shares are renewed in transactions. On a server, all rows
// that are not locked come first, whatever their mode: a locked row must not cost the holder its other
// locks. MySQL cannot limit a statement in this way: there each waits for innodb_lock_wait_timeout.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var exclusive, shares []int
	var longest time.Duration
	for i := range grants {
		longest = max(longest, grants[i].TTL)
		if isListed(&grants[i]) || s.downgraded.Has(grants[i].Owner) {
			shares = append(shares, i)
		} else {
			exclusive = append(exclusive, i)
		}
	}
	s.reserve.ttl.Store(int64(longest))
	errs := make([]error, len(grants))
	locked := exclusive
	if len(grants) > 1 { // a single lock waits at once
		locked = s.renewExclusive(ctx, statement.RenewAtOnce, grants, exclusive, errs)
	}
	r := &shareRenewal{store: s, grants: grants, errs: errs, downgraded: make([]bool, len(grants)), byName: make(map[string][]int)}
	r.add(shares)
	r.add(s.downgradedOf(grants, exclusive, errs))
	r.renewPending(ctx, false)
	for start := time.Now(); len(locked) > 0 || len(r.pending) > 0; {
		waited := locked
		locked = s.renewExclusive(ctx, statement.Renew, grants, waited, errs)
		r.add(s.downgradedOf(grants, waited, errs))
		r.renewPending(ctx, true)
		if len(locked) > 0 || len(r.pending) > 0 {
			if time.Since(start) >= busyLimit || backoff.Sleep(ctx, busyPause) != nil {
				break
			}
		}
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// downgradedOf returns those of the grants that are not held because of a downgrade that came between.
func (s *Store) downgradedOf(grants []driver.Grant, which []int, errs []error) (shares []int) {
	for _, i := range which {
		if errors.Is(errs[i], driver.ErrNotHeld) && s.downgraded.Has(grants[i].Owner) {
			shares = append(shares, i)
		}
	}
	return shares
}

// renewExclusive renews some of the grants, each thousand by one statement, and sets their errors. If a
// statement fails on a server because a row is locked, each of its grants is renewed by itself.
// renewExclusive returns the grants whose rows are locked; their errors say so.
func (s *Store) renewExclusive(ctx context.Context, id statement.ID, grants []driver.Grant, which []int, errs []error) (locked []int) {
	for pending := range slices.Chunk(which, renewChunk) { // grants whose outcome is not known
		err := s.renewSoon(ctx, func(conn *sql.Conn) error {
			err := s.renewRows(ctx, conn, id, grants, pending, errs)
			if err == nil || s.dialect.renewers == 0 || !s.isRetryable(err) {
				return err
			}
			stillLocked, rest, err := s.renewEach(ctx, conn, grants, pending, errs)
			if pending = rest; err == nil {
				locked = append(locked, stillLocked...)
			}
			return err
		})
		if err != nil {
			for _, i := range pending {
				errs[i] = err
			}
		}
	}
	return locked
}

// renewEach renews one grant at a time. It returns the grants whose rows are locked, and after an error
// also the grants that it did not reach.
func (s *Store) renewEach(ctx context.Context, conn *sql.Conn, grants []driver.Grant, which []int, errs []error) (locked, pending []int, err error) {
	for n, i := range which {
		err := s.renewRows(ctx, conn, statement.RenewAtOnce, grants, []int{i}, errs)
		switch {
		case err == nil:
		case s.isRetryable(err):
			errs[i] = s.explain(ctx, "renew", err)
			locked = append(locked, i)
		default:
			return locked, which[n:], err
		}
	}
	return locked, nil, nil
}

// renewRows renews some of the grants by one statement. Unless it fails, errs gets ErrNotHeld for each
// that was not renewed, and nil for the others.
func (s *Store) renewRows(ctx context.Context, conn *sql.Conn, id statement.ID, grants []driver.Grant, which []int, errs []error) error {
	rows := make([][4]any, len(which))
	for n, i := range which {
		g := &grants[i]
		rows[n] = [4]any{g.Name, g.Owner.Hex(), lastToken(g), millis(g.TTL)}
	}
	// In one order, so that deadlocks are rare. They are tried again.
	slices.SortFunc(rows, func(a, b [4]any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	renewed, err := s.runOn(conn).Renew(ctx, id, sqldb.JSON(rows), len(rows))
	if err != nil {
		return err
	}
	for _, i := range which {
		errs[i] = nil
		if renewed != nil && !renewed[statement.Key{Name: grants[i].Name, Owner: grants[i].Owner.Hex()}] {
			errs[i] = driver.ErrNotHeld
		}
	}
	return nil
}

// renewSoon runs a renewal. A holder must not wait for waiters, which may wait for a row that
// another transaction keeps locked. So renewals have a connection to spare while all others
// are in use.
func (s *Store) renewSoon(ctx context.Context, renew func(*sql.Conn) error) error {
	return s.withConn(ctx, s.writing, s.renewing, "renew", func() error { return s.onReserve(ctx, renew) })
}

// shareChunk is how many names one transaction renews. On a server each takes a round trip, and the
// rows stay locked until the last one.
const shareChunk = 50

// shareRenewal renews shares of locks by name.
type shareRenewal struct {
	store      *Store
	grants     []driver.Grant
	errs       []error          // by grant
	downgraded []bool           // by grant: its renewal completes a downgrade
	byName     map[string][]int // indexes of grants
	pending    []string         // names that are not renewed yet, in one order
}

// add makes the names of some of the grants pending.
func (r *shareRenewal) add(which []int) {
	if len(which) == 0 {
		return
	}
	for _, i := range which {
		name := r.grants[i].Name
		r.byName[name] = append(r.byName[name], i)
		r.pending = append(r.pending, name)
	}
	slices.Sort(r.pending) // so that deadlocks are rare
	r.pending = slices.Compact(r.pending)
}

// settle records the end of the transaction that renewed names. It was committed if err is nil.
func (r *shareRenewal) settle(names []string, err error) {
	for _, name := range names {
		for _, i := range r.byName[name] {
			switch {
			case err != nil: // what the transaction set was rolled back
				r.errs[i] = err
			case r.errs[i] != nil: // it is not held
				r.store.downgraded.Put(r.grants[i].Owner, false)
			case r.downgraded[i]:
				r.store.waiters.notify(name)
			}
		}
	}
}

// renewPending renews the pending names: many in one transaction, which skips locked rows, or each in a
// transaction of its own, which waits for its row. Names stay pending whose rows are locked, or were not
// found without waiting.
func (r *shareRenewal) renewPending(ctx context.Context, wait bool) {
	s, names, size := r.store, r.pending, shareChunk
	if wait {
		size = 1
	}
	r.pending = nil
	for chunk := range slices.Chunk(names, size) {
		var skipped []string
		var locked error
		err := s.renewSoon(ctx, func(conn *sql.Conn) error {
			err := s.inTxOn(ctx, conn, func(run statement.Runner) (err error) {
				skipped, err = r.renewNames(ctx, run, chunk, wait)
				return err
			})
			if locked = nil; wait && s.isRetryable(err) {
				locked, err = s.explain(ctx, "renew", err), nil
			}
			return err
		})
		switch {
		case err != nil:
		case locked != nil:
			r.pending, err = append(r.pending, chunk...), locked
		default:
			r.pending = append(r.pending, skipped...)
			chunk = slices.DeleteFunc(chunk, func(name string) bool { return slices.Contains(skipped, name) })
		}
		r.settle(chunk, err)
	}
}

// renewNames renews the names whose rows it can lock, and returns the others.
func (r *shareRenewal) renewNames(ctx context.Context, run statement.Runner, names []string, wait bool) (skipped []string, err error) {
	var locks map[string]*row.Lock
	if !wait {
		if locks, err = readRows(ctx, run, statement.LockRows, names); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		lock := locks[name]
		if wait {
			if lock, _, err = readRow(ctx, run, statement.LockRow, &driver.Request{Name: name}); err != nil {
				return nil, err
			}
			lock = cmp.Or(lock, &row.Lock{})
		}
		if lock == nil {
			skipped = append(skipped, name)
		} else if err := r.renew(ctx, run, name, lock); err != nil {
			return nil, err
		}
	}
	return skipped, nil
}

// renew renews the shares of a name whose row is locked, and writes the row. If the outcome of a
// downgrade is unknown and the lock is still exclusive, renew completes the downgrade.
func (r *shareRenewal) renew(ctx context.Context, run statement.Runner, name string, lock *row.Lock) error {
	renewed, save := false, statement.SaveRow
	for _, i := range r.byName[name] {
		g := &r.grants[i]
		owner := g.Owner.Hex()
		completes := !isListed(g) && lock.Mode == (driver.Mode{}) && lock.Downgrade(owner, lastToken(g))
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
