package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// member is one of the servers.
type member struct {
	s     *Store
	store master.Store
	index int
	name  string

	identified atomic.Bool

	start    time.Time
	inFlight atomic.Int64 // calls that are under way
	answered atomic.Int64 // when it last answered or was idle, as the time since start

	repairing atomic.Bool // it gets the locks again that it lost

	mu     sync.Mutex
	missed []missedRelease // what the member did not answer, in the order of arrival
}

// maxInFlight is how many calls, except releases, a member gets that answers none of them.
const maxInFlight = 64

var errStuck = fmt.Errorf("%w: it answers none of %d calls", driver.ErrUnreachable, maxInFlight)

// call makes a call within the member's limit, after it has found out which server the member is. It uses
// only the values of ctx: the call goes on when its caller has returned with the answers of other
// members. If the member answers none of maxInFlight calls, it makes no call and returns errStuck.
func (m *member) call(ctx context.Context, f func(ctx context.Context) error) error {
	if m.inFlight.Load() >= maxInFlight && int64(time.Since(m.start))-m.answered.Load() > int64(2*m.s.timeout) {
		return errStuck
	}
	ctx = context.WithoutCancel(ctx)
	if err := m.identify(ctx); err != nil {
		return err
	}
	return m.callAnyway(ctx, f)
}

// callAnyway makes a call until ctx ends, and within the member's limit.
func (m *member) callAnyway(ctx context.Context, f func(ctx context.Context) error) error {
	if m.inFlight.Add(1) == 1 {
		m.answered.Store(int64(time.Since(m.start)))
	}
	defer m.inFlight.Add(-1)
	limited := deadline.After(ctx, m.s.timeout)
	defer limited.End()
	err := f(limited)
	if limited.Err() == nil {
		m.answered.Store(int64(time.Since(m.start)))
		return err
	}
	return m.timedOut(err)
}

// timedOut makes the error of a call that reached its limit ErrUnreachable.
func (m *member) timedOut(err error) error {
	switch {
	case isAnswer(err), errors.Is(err, driver.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, driver.ErrUnreachable):
		return fmt.Errorf("%w (no answer within %v)", err, m.s.timeout)
	}
	return fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnreachable, m.s.timeout, err)
}

// isAnswer reports whether err is an outcome that the member knows.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld)
}

// acquire makes an attempt for an acquisition, with tokens of at least floor.
func (m *member) acquire(ctx context.Context, a *acquisition, floor uint64) (token uint64, err error) {
	req := driver.Request{Name: a.name, Owner: a.alias, TTL: a.ttl, Holder: a.holder}
	err = m.call(ctx, func(ctx context.Context) error {
		a.locked(func() { a.members[m.index].asked = true })
		token, err = m.store.Acquire(ctx, req, floor)
		return err
	})
	if err == nil {
		a.noteToken(m.index, token)
	}
	return token, err
}

func (m *member) renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	err := m.call(ctx, func(ctx context.Context) error {
		if errs = m.store.Renew(ctx, grants); ctx.Err() != nil {
			for i := range errs {
				errs[i] = m.timedOut(errs[i])
			}
		}
		return errors.Join(errs...)
	})
	if errs == nil { // all were renewed, or the call was not made
		errs = slices.Repeat([]error{err}, len(grants))
	}
	return errs
}

// release releases an acquisition at the member, by its alias. It is called even if many
// calls wait: a store undoes a late attempt only if it got the release.
func (m *member) release(ctx context.Context, a *acquisition) error {
	return m.callAnyway(ctx, func(ctx context.Context) error { return m.store.Release(ctx, a.aliasGrant()) })
}

// raiseToken gives the lock of an acquisition that token at the member. It returns the token that the
// lock has then.
func (m *member) raiseToken(ctx context.Context, a *acquisition, token uint64) (raised uint64, err error) {
	grant := a.aliasGrant()
	grant.Token = a.tokenAt(m.index)
	err = m.call(ctx, func(ctx context.Context) error {
		raised, err = m.store.RaiseToken(ctx, grant, token)
		return err
	})
	if err == nil {
		a.noteToken(m.index, raised)
	}
	return raised, err
}

// identify finds out which server a member reaches, before its first vote.
func (m *member) identify(ctx context.Context) error {
	if m.identified.Load() {
		return nil
	}
	var id string
	err := m.callAnyway(ctx, func(ctx context.Context) (err error) {
		id, err = m.store.Identify(ctx)
		return err
	})
	switch {
	case errors.Is(err, driver.ErrUnreachable):
		return fmt.Errorf("finding out which server it is: %w", err)
	case err != nil: // it counts as a server of its own
		m.identified.Store(true)
		return nil
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.servers[id]; first != nil && first != m {
		s.sameServerErr = fmt.Errorf("%w: %s and %s are the same server, whose vote would count twice", driver.ErrMisconfigured, first.name, m.name)
		return s.sameServerErr
	}
	s.servers[id] = m
	m.identified.Store(true)
	return nil
}

// sameServer returns the error of a Redlock of which two members are one server.
func (s *Store) sameServer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sameServerErr
}
