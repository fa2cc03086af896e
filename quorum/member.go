package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// member is one of the stores. Its methods limit the time of each call.
type member struct {
	store      driver.Store
	raiser     driver.TokenRaiser // nil if the store is not one
	identifier driver.Identifier  // nil if the store is not one
	index      int
	name       string
	timeout    time.Duration

	identified atomic.Bool

	start    time.Time
	waiting  atomic.Int64 // calls that are under way
	answered atomic.Int64 // when it last answered, or was idle: since start

	repairs  workQueue // locks that the member lost
	releases workQueue // releases that the member did not answer
}

// maxWaiting is how many calls may wait for a member that does not answer.
const maxWaiting = 64

var errStuck = fmt.Errorf("%w: it answers none of the calls that are waiting", driver.ErrUnreachable)

// call makes a call within the member's limit. It uses only the values of ctx: the call goes
// on when its caller has returned with the answers of other members.
func (m *member) call(ctx context.Context, f func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	defer cancel()
	return m.callWithin(limited, f)
}

// callWithin makes a call whose context has the member's limit, unless too many calls wait.
func (m *member) callWithin(limited context.Context, f func(ctx context.Context) error) error {
	if m.waiting.Load() >= maxWaiting && int64(time.Since(m.start))-m.answered.Load() > int64(2*m.timeout) {
		return errStuck
	}
	return m.callAlways(limited, f)
}

// callAlways makes a call whose context has the member's limit.
func (m *member) callAlways(limited context.Context, f func(ctx context.Context) error) error {
	if m.waiting.Add(1) == 1 {
		m.answered.Store(int64(time.Since(m.start)))
	}
	defer m.waiting.Add(-1)
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
	case isAnswer(err):
		return err
	case errors.Is(err, driver.ErrUnreachable):
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w (no answer within %v)", err, m.timeout)
		}
		return err
	}
	return fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnreachable, m.timeout, err)
}

// isAnswer reports whether err is an outcome that the member knows.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld)
}

func (m *member) acquire(limited context.Context, req *driver.Request) (grant driver.Grant, err error) {
	err = m.callWithin(limited, func(ctx context.Context) error {
		grant, err = m.store.Acquire(ctx, *req)
		return err
	})
	return grant, err
}

func (m *member) raise(ctx context.Context, grant driver.Grant, token uint64) (raised driver.Grant, err error) {
	err = m.call(ctx, func(ctx context.Context) error {
		raised, err = m.raiser.RaiseToken(ctx, grant, token)
		return err
	})
	return raised, err
}

func (m *member) renew(limited context.Context, grants []driver.Grant) (errs []error) {
	err := m.callWithin(limited, func(ctx context.Context) error {
		errs = m.store.Renew(ctx, grants)
		return errors.Join(errs...)
	})
	switch {
	case err == nil:
	case errs == nil: // the call was not made
		errs = slices.Repeat([]error{err}, len(grants))
	case limited.Err() != nil:
		for i := range errs {
			errs[i] = m.timedOut(errs[i])
		}
	}
	return errs
}

// release releases an acquisition at the member, by its alias. It is called even if many
// calls wait: a store undoes a late attempt only if it got the release.
func (m *member) release(limited context.Context, a *acquisition) error {
	grant := a.memberGrant(m.index)
	grant.Token = 0
	return m.callAlways(limited, func(ctx context.Context) error { return m.store.Release(ctx, grant) })
}

// identify finds out which server a member reaches, if it can tell, before its first vote.
func (s *Store) identify(ctx context.Context, m *member) error {
	if m.identifier == nil || m.identified.Load() {
		return nil
	}
	var id string
	err := m.call(ctx, func(ctx context.Context) (err error) {
		id, err = m.identifier.Identify(ctx)
		return err
	})
	switch {
	case errors.Is(err, driver.ErrUnreachable):
		return fmt.Errorf("finding out which server it is: %w", err)
	case err != nil || id == "": // a member that does not tell is taken as it is
		m.identified.Store(true)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.servers[id]; first != nil && first != m {
		s.same = fmt.Errorf("%w: %s and %s are the same server, whose vote would count twice", driver.ErrMisconfigured, first.name, m.name)
		return s.same
	}
	s.servers[id] = m
	m.identified.Store(true)
	return nil
}

// sameServer returns the error of a quorum of which two members are one server.
func (s *Store) sameServer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// sharedDeadline is one context for an operation that calls each member once.
type sharedDeadline struct {
	values  context.Context // has the values of the caller's context, and no end
	limited context.Context // ends at the deadline
	cancel  context.CancelFunc
	began   time.Time
	timeout time.Duration
	left    atomic.Int64 // calls that have not ended
}

func (s *Store) newDeadline(ctx context.Context) *sharedDeadline {
	d := &sharedDeadline{values: context.WithoutCancel(ctx), began: time.Now(), timeout: s.timeout}
	d.limited, d.cancel = context.WithTimeout(d.values, s.timeout)
	d.left.Store(int64(len(s.members)))
	return d
}

// context returns the context for a call that begins now, with the full time if it begins late.
func (d *sharedDeadline) context() (context.Context, context.CancelFunc) {
	if time.Since(d.began) > d.timeout/8 {
		return context.WithTimeout(d.values, d.timeout)
	}
	return d.limited, func() {}
}

// done is called at the end of each call. The last one frees the timer.
func (d *sharedDeadline) done() {
	if d.left.Add(-1) == 0 {
		d.cancel()
	}
}
