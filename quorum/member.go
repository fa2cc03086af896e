package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// member is one of the stores. Its methods limit the time of each call.
type member struct {
	store      driver.Store
	raiser     driver.TokenRaiser // nil if it is none
	identifier driver.Identifier  // nil if it is none
	index      int
	name       string
	timeout    time.Duration

	identified atomic.Bool

	start    time.Time
	pending  atomic.Int64 // calls that are under way
	answered atomic.Int64 // when it last answered, or was idle: since start

	repairs   repairs
	leftovers leftovers
}

func newMember(store driver.Store, index int, timeout time.Duration) *member {
	m := &member{store: store, index: index, name: fmt.Sprintf("member %d", index+1), timeout: timeout, start: time.Now()}
	m.raiser, _ = store.(driver.TokenRaiser)
	m.identifier, _ = store.(driver.Identifier)
	return m
}

// maxSilent is how many calls may wait for a member that does not answer any. More
// of them would only pile up.
const maxSilent = 64

var errSilent = fmt.Errorf("%w: it answers none of the calls that are waiting", driver.ErrUnreachable)

// call makes a call within the member's limit. The context of the caller lends its
// values only: the call goes on when the caller has its answer from others.
func (m *member) call(ctx context.Context, f func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.timeout)
	defer cancel()
	return m.within(limited, f)
}

// within makes a call whose context has the member's limit, unless too many wait.
func (m *member) within(limited context.Context, f func(ctx context.Context) error) error {
	if m.pending.Load() >= maxSilent && int64(time.Since(m.start))-m.answered.Load() > int64(2*m.timeout) {
		return errSilent
	}
	return m.always(limited, f)
}

// always makes a call whose context has the member's limit.
func (m *member) always(limited context.Context, f func(ctx context.Context) error) error {
	if m.pending.Add(1) == 1 {
		m.answered.Store(int64(time.Since(m.start)))
	}
	defer m.pending.Add(-1)
	err := f(limited)
	if limited.Err() == nil {
		m.answered.Store(int64(time.Since(m.start)))
		return err
	}
	return m.blame(err)
}

// blame says of a call that ended with its time that the member did not answer.
func (m *member) blame(err error) error {
	if errors.Is(err, driver.ErrUnreachable) || isAnswer(err) {
		return err
	}
	return fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnreachable, m.timeout, err)
}

// isAnswer says whether err is an outcome that the member knows.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld)
}

func (m *member) acquire(limited context.Context, req *driver.Request) (grant driver.Grant, err error) {
	err = m.within(limited, func(ctx context.Context) error {
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
	err := m.within(limited, func(ctx context.Context) error {
		errs = m.store.Renew(ctx, grants)
		if errs != nil && len(errs) != len(grants) {
			return fmt.Errorf("%d grants were renewed with %d answers", len(grants), len(errs))
		}
		return errors.Join(errs...)
	})
	switch {
	case err == nil:
	case len(errs) != len(grants):
		errs = each(len(grants), err)
	case limited.Err() != nil:
		for i := range errs {
			errs[i] = m.blame(errs[i])
		}
	}
	return errs
}

// release is never refused: the member may still carry out the attempt, and its store
// undoes it only if it was told so. There are no more of them than attempts.
func (m *member) release(limited context.Context, grant driver.Grant) error {
	return m.always(limited, func(ctx context.Context) error { return m.store.Release(ctx, grant) })
}

// identify finds out which server a member is, if it tells, before its first vote
// counts.
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
	case err != nil || id == "": // it does not tell us, which is no reason to do without it
		m.identified.Store(true)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.servers[id]; first != nil && first != m {
		s.same = fmt.Errorf("%s and %s are the same server, whose vote would count twice", first.name, m.name)
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
