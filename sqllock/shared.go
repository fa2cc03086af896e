package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Shared locks and permits are a list in the row of their name; see package row. A transaction
// locks the row, reads it, and writes what the list becomes. It locks no other row of
// the table, unless several names are acquired or renewed at once, in the order of their names.

// listed is the Handle of a grant that is in such a list from the beginning.
type listed struct{}

func isListed(grant *driver.Grant) bool { return grant.Handle == listed{} }

// acquireShare makes an attempt for a shared lock or a permit, in a transaction.
func acquireShare(ctx context.Context, run statement.Runner, req *driver.Request) (token uint64, err error) {
	lock, before, err := lockRow(ctx, run, req)
	if err != nil {
		return 0, err
	}
	if err := shareRefusal(req, lock, before); err != nil {
		return 0, err
	}
	if token, err = admit(req, lock); err != nil {
		return 0, err
	}
	return token, saveRow(ctx, run, statement.SaveRow, req.Name, lock)
}

// admit gives a request that is not refused its share, and returns the last token.
func admit(req *driver.Request, lock *row.Lock) (token uint64, err error) {
	if lock.Row().Token > math.MaxInt64-tokenStep {
		return 0, errTokenTooLarge
	}
	return uint64(lock.Admit(req.Mode, req.Owner.Hex(), req.Holder, tokenStep, millis(req.TTL))), nil
}

// placesBefore are the places that a request has to give way to.
type placesBefore struct {
	count     int
	remaining int64 // milliseconds until the first of them expires
	fair      bool  // fair waiters have places, which may be of another kind
}

// shareRefusal returns why a shared lock or a permit cannot be granted, or nil if it can.
func shareRefusal(req *driver.Request, lock *row.Lock, before placesBefore) error {
	if lock.Of(req.Owner.Hex()) != nil {
		return nil
	}
	if err := refusal(req, lock, before.fair); err != nil {
		return err
	}
	if before.count > max(0, req.Mode.Limit-len(lock.Shares)-1) {
		return &driver.HeldError{Name: req.Name, Remaining: remaining(before.remaining), Queued: !req.Fair && before.fair}
	}
	return nil
}

// refusal returns the error for a request that the holders of the lock exclude, or nil. queued says
// whether fair waiters have places.
func refusal(req *driver.Request, lock *row.Lock, queued bool) error {
	h := lock.Excluding(req.Mode)
	switch {
	case h == nil:
		return nil
	case lock.Mode.Limit != req.Mode.Limit:
		return &driver.ModeError{Name: req.Name, Mode: lock.Mode}
	}
	return &driver.HeldError{Name: req.Name, Token: firstToken(h.Token), Mode: lock.Mode, Holder: h.Holder,
		Remaining: remaining(lock.Remaining(h)), Queued: !req.Fair && queued}
}

func isRefusal(err error) bool {
	return errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrMode)
}

// lockRow locks the row of a request, which it inserts if need be, and reads it.
func lockRow(ctx context.Context, run statement.Runner, req *driver.Request) (*row.Lock, placesBefore, error) {
	for range maxRaces {
		lock, before, err := readRow(ctx, run, statement.LockRow, req)
		if err != nil || lock != nil {
			return lock, before, err
		}
		if err := insertFree(ctx, run, req); err != nil {
			return nil, before, err
		}
	}
	return nil, placesBefore{}, &driver.HeldError{Name: req.Name}
}

// readRow reads the row of a request with one of the statements ReadRow, ReadHolders and LockRow. Without a row
// the lock is nil.
func readRow(ctx context.Context, run statement.Runner, id statement.ID, req *driver.Request) (lock *row.Lock, before placesBefore, err error) {
	args := []any{req.Name, req.Owner.Hex(), modeBefore(req)}
	if id == statement.ReadHolders {
		args = args[:1]
	}
	lock, err = readLock(func(dest ...any) error { return run.One(ctx, id, args, dest...) }, &before)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, before, nil
	}
	return lock, before, err
}

// readLock reads a row and the places that come before a request, after other columns.
func readLock(scan func(...any) error, before *placesBefore, others ...any) (*row.Lock, error) {
	var expiry int64
	lock, err := row.Read(scan, others, &before.count, &expiry, &before.fair)
	if err == nil {
		before.remaining = max(0, expiry-lock.Now())
	}
	return lock, err
}

// readRows reads the rows of names that exist, and with LockRows those that no other transaction
// has locked.
func readRows(ctx context.Context, run statement.Runner, id statement.ID, names []string) (map[string]*row.Lock, error) {
	locks := make(map[string]*row.Lock, len(names))
	err := run.Each(ctx, id, []any{sqldb.JSON(names)}, func(scan func(...any) error) error {
		var name string
		lock, err := row.Read(scan, []any{&name})
		if err == nil {
			locks[name] = lock
		}
		return err
	})
	return locks, err
}

func saveRow(ctx context.Context, run statement.Runner, id statement.ID, name string, lock *row.Lock) error {
	r := lock.Row()
	_, err := run.Exec(ctx, id, name, r.Token, sql.NullString{String: r.Owner, Valid: r.Owner != ""}, r.Since, r.Expires, r.Holder)
	return err
}

// editShares changes the list of the holders of name in a transaction, as change says, and notifies
// waiters. It reports whether change did.
func (s *Store) editShares(ctx context.Context, op, name string, change func(*row.Lock) bool) (bool, error) {
	return s.runAndNotify(ctx, op, &batch.Job{Name: name, InTx: true}, func(ctx context.Context, run statement.Runner) (bool, error) {
		return editSharesIn(ctx, run, name, change)
	})
}

func editSharesIn(ctx context.Context, run statement.Runner, name string, change func(*row.Lock) bool) (bool, error) {
	lock, _, err := readRow(ctx, run, statement.LockRow, &driver.Request{Name: name})
	if err != nil || lock == nil || !change(lock) {
		return false, err
	}
	return true, saveRow(ctx, run, statement.SaveFreed, name, lock)
}

// hasShare reports whether the owner has a share, so that a transaction is worth it.
func hasShare(ctx context.Context, run statement.Runner, name string, owner driver.Owner) (bool, error) {
	lock, _, err := readRow(ctx, run, statement.ReadRow, &driver.Request{Name: name})
	return lock != nil && lock.Mode != (driver.Mode{}) && lock.Of(owner.Hex()) != nil, err
}

// releaseShare releases a shared lock or a permit, and reports whether grant.Owner had one.
func (s *Store) releaseShare(ctx context.Context, grant *driver.Grant) (bool, error) {
	if !isListed(grant) { // it may be a lock that was downgraded, or an attempt of unknown outcome
		var has bool
		err := s.read(ctx, "release", func() (err error) {
			has, err = hasShare(ctx, s.run(), grant.Name, grant.Owner)
			return err
		})
		if err != nil || !has {
			return false, err
		}
	}
	return s.editShares(ctx, "release", grant.Name, func(lock *row.Lock) bool {
		return lock.Release(grant.Owner.Hex(), lastToken(grant))
	})
}

// Downgrade implements driver.Downgrader. If its outcome is unknown, the lock may still be exclusive:
// then a renewal completes the downgrade.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	if err := checkContext(ctx, "downgrade"); err != nil {
		return err
	}
	s.downgraded.Put(grant.Owner, true)
	downgraded, err := s.editShares(ctx, "downgrade", grant.Name, func(lock *row.Lock) bool {
		return lock.Downgrade(grant.Owner.Hex(), lastToken(&grant))
	})
	if err == nil && !downgraded {
		s.downgraded.Put(grant.Owner, false)
		err = driver.ErrNotHeld
	}
	return err
}
