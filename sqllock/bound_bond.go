package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// phase is where a bond is on its way.
type phase int

const (
	taking  phase = iota // the server is being asked
	held                 // it is held
	leaving              // it is being given up
)

// bond is a lock that this store has, or is about to have or to lose. The
// server's locks belong to a connection, which owners share, so that who of this
// store has a lock is decided here, and only the store as a whole asks the server.
type bond struct {
	name  string
	owner driver.Owner
	key   lockKey

	// Under the store's mutex:
	phase    phase
	token    uint64
	link     *link // that it is on or being asked for on; nil if there is none yet
	ttl      time.Duration
	deadline time.Time // when the store gives it up by itself
	holder   driver.Holder
	lost     func()
	changed  chan struct{} // closed at the next change; nil if nobody waits for it
}

// grant is what the holder of the bond gets.
func (b *bond) grant() driver.Grant {
	return driver.Grant{Name: b.name, Owner: b.owner, Token: b.token, TTL: b.ttl}
}

// heldError describes the bond to another owner.
func (b *bond) heldError(now time.Time) *driver.HeldError {
	err := &driver.HeldError{Name: b.name, Token: b.token, Holder: b.holder}
	if b.phase == held {
		err.Remaining = max(0, b.deadline.Sub(now))
	}
	return err
}

// wakeLocked tells those who wait that something has changed.
func (b *bond) wakeLocked() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// extendLocked starts the TTL of a lock that is held again. It never shortens it: the
// answer to an earlier call may come after that to a later one.
func (s *BoundStore) extendLocked(b *bond, ttl time.Duration) {
	b.ttl = ttl
	if deadline := time.Now().Add(ttl); deadline.After(b.deadline) {
		b.deadline = deadline
	}
	s.hurryLocked(b.deadline)
}

// bind notes on which link the server is asked, so that the attempt is over when
// that is lost, whether its answer comes or not. It is false if it was lost already.
func (s *BoundStore) bind(b *bond, l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.dead.Load() {
		return false
	}
	b.link = l
	return true
}

// hold notes that the server has granted the lock on that link. It is false if
// the link was lost meanwhile.
func (s *BoundStore) hold(b *bond, l *link, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.dead.Load() {
		return false
	}
	b.phase, b.link, b.token = held, l, token
	s.extendLocked(b, b.ttl)
	b.wakeLocked()
	return true
}

// settle takes a bond that is over out of the books, and tells who waits for it.
func (s *BoundStore) settle(b *bond) {
	s.forget(b)
	s.watchers.wake(b.name)
}

// forget takes a bond that never was, or is over, out of the books.
func (s *BoundStore) forget(b *bond) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.phase = leaving
	if s.bonds[b.name] == b {
		delete(s.bonds, b.name)
	}
	b.wakeLocked()
}

// wait returns when the bond has changed.
func (s *BoundStore) wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// changedLocked is closed when the bond changes.
func (b *bond) changedLocked() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// Acquire implements driver.Store.
func (s *BoundStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	const op = "acquire"
	if err := s.begin(ctx, op); err != nil {
		return driver.Grant{}, err
	}
	defer s.work.Done()
	for tries := 1; ; {
		b, fresh, changed, err := s.claim(req)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case changed != nil:
			if err := s.wait(ctx, changed); err != nil {
				return driver.Grant{}, s.fail(ctx, op, err)
			}
			continue
		case !fresh:
			return s.again(ctx, b, req)
		}
		err = s.take(ctx, b)
		if errors.Is(s.fail(ctx, op, err), driver.ErrUnreachable) && !errors.Is(err, errPoolInUse) && tries < takeTries {
			tries++
			continue
		}
		if err != nil {
			return driver.Grant{}, s.fail(ctx, op, err)
		}
		s.mu.Lock()
		grant := b.grant()
		s.mu.Unlock()
		return grant, nil
	}
}

// takeTries is how often a connection that fails is replaced by another one: all that
// the pool kept may have ended unnoticed while nobody used them. What was taken on
// one ends with it.
const takeTries = 5

// claim decides among the owners of this store: a fresh bond that is to be taken,
// one that the owner has already, or a change to wait for.
func (s *BoundStore) claim(req driver.Request) (b *bond, fresh bool, changed <-chan struct{}, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b = s.bonds[req.Name]
	switch {
	case s.closed:
		return nil, false, nil, driver.ErrClosed
	case b == nil:
		b = &bond{name: req.Name, owner: req.Owner, ttl: req.TTL, holder: req.Holder, lost: req.Lost}
		s.bonds[req.Name] = b
		return b, true, nil, nil
	case b.phase == held && !now.Before(b.deadline):
		changed = b.changedLocked()
		s.expireLocked(b)
		return nil, false, changed, nil
	case b.owner != req.Owner:
		return nil, false, nil, b.heldError(now)
	case b.phase != held:
		return nil, false, b.changedLocked(), nil
	}
	return b, false, nil, nil
}

// take asks the server for a new bond.
func (s *BoundStore) take(ctx context.Context, b *bond) error {
	b.key = s.key(b.name)
	if s.scheme == Session {
		return s.takeSession(ctx, b)
	}
	return s.takeRow(ctx, b)
}

// again is Acquire for the owner who has the lock.
func (s *BoundStore) again(ctx context.Context, b *bond, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	b.lost = req.Lost
	grant := b.grant()
	s.mu.Unlock()
	grant.TTL = req.TTL
	if err := s.confirm(ctx, []driver.Grant{grant})[0]; err != nil {
		return driver.Grant{}, fmt.Errorf("%w: acquire: %w", driver.ErrUnreachable, errLinkGone)
	}
	return grant, nil
}

// Release implements driver.Store.
func (s *BoundStore) Release(ctx context.Context, grant driver.Grant) error {
	const op = "release"
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	defer s.work.Done()
	for {
		b, changed, err := s.part(grant)
		if err != nil {
			return err
		}
		if changed == nil {
			return s.fail(ctx, op, s.giveUp(ctx, b))
		}
		if err := s.wait(ctx, changed); err != nil {
			return s.fail(ctx, op, err)
		}
	}
}

// part finds what to give up, and makes it leave: a bond, or a change to wait
// for, because the server is still being asked.
func (s *BoundStore) part(grant driver.Grant) (*bond, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bonds[grant.Name]
	switch {
	case b == nil, b.owner != grant.Owner:
		return nil, nil, driver.ErrNotHeld
	case b.phase != held:
		return nil, b.changedLocked(), nil
	case grant.Token != 0 && grant.Token != b.token:
		return nil, nil, driver.ErrNotHeld
	case !time.Now().Before(b.deadline):
		s.expireLocked(b)
		return nil, nil, driver.ErrNotHeld
	}
	b.phase = leaving
	return b, nil, nil
}

// giveUp gives up a bond that is leaving. Where the connection turns out to be
// gone the lock was not held any more, perhaps for longer than anybody knew.
func (s *BoundStore) giveUp(ctx context.Context, b *bond) error {
	l := b.link
	if err := l.enter(ctx); err != nil {
		return s.stay(b, err)
	}
	return s.perform(ctx, l, func() error { return s.cut(l, b) })
}

// cut is giveUp for whoever uses the link already.
func (s *BoundStore) cut(l *link, b *bond) error {
	if !s.untie(l, b) {
		s.lose(l)
		s.settle(b)
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, errLinkGone)
	}
	s.settle(b)
	return nil
}

// untie gives up the server's lock. It is false if that was not there.
func (s *BoundStore) untie(l *link, b *bond) bool {
	if s.scheme == Session {
		return s.untieSession(l, b.key)
	}
	return s.untieRow(l, b.key)
}

// stay keeps a bond that was to leave, because the server was not even asked.
func (s *BoundStore) stay(b *bond, reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bonds[b.name] != b { // it was lost meanwhile
		return driver.ErrNotHeld
	}
	b.phase = held
	b.wakeLocked()
	return reason
}

// Renew implements driver.Store. It asks every connection once whether it is
// still the one that the locks are on.
func (s *BoundStore) Renew(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 0 {
		return nil
	}
	errs := make([]error, len(grants))
	if err := s.begin(ctx, "renew"); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer s.work.Done()
	errs = s.confirm(ctx, grants)
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}
