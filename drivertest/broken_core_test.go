package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes in the mandatory part of the contract, one a store.

type halfTTL struct{ *memlock.Store }

func (s halfTTL) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL /= 2
	grant, err := s.Store.Acquire(ctx, req)
	grant.TTL *= 2
	return grant, err
}

type refusesOwner struct {
	*memlock.Store
	last *shelf[driver.Owner]
}

func (s refusesOwner) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if info := current(ctx, s.Store, req.Name); info.Token != 0 && s.last.get(req.Name) == req.Owner {
		return driver.Grant{}, &driver.HeldError{Name: req.Name, Token: info.Token, Holder: info.Holder}
	}
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.last.put(req.Name, req.Owner)
	}
	return grant, err
}

type keepsTTL struct {
	*memlock.Store
	last *shelf[driver.Grant]
}

func (s keepsTTL) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if had := s.last.get(req.Name); had.Owner == req.Owner && current(ctx, s.Store, req.Name).Token == had.Token {
		return had, nil
	}
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.last.put(req.Name, grant)
	}
	return grant, err
}

type waits struct{ *memlock.Store }

func (s waits) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	for deadline := time.Now().Add(1300 * time.Millisecond); ; {
		grant, err := s.Store.Acquire(ctx, req)
		if !errors.Is(err, driver.ErrHeld) || req.Fair || time.Now().After(deadline) || pause(ctx) != nil {
			return grant, err
		}
	}
}

// renumbered gives out other tokens than the store has.
type renumbered struct {
	*memlock.Store
	number func(token uint64) uint64
	mu     sync.Mutex
	tokens map[driver.Owner]uint64 // the true ones
}

func newRenumbered(m *memlock.Store, number func(uint64) uint64) *renumbered {
	return &renumbered{Store: m, number: number, tokens: make(map[driver.Owner]uint64)}
}

func (s *renumbered) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.mu.Lock()
		s.tokens[req.Owner] = grant.Token
		s.mu.Unlock()
		grant.Token = s.number(grant.Token)
	}
	return grant, err
}

func (s *renumbered) Release(ctx context.Context, grant driver.Grant) error {
	s.mu.Lock()
	if token := s.tokens[grant.Owner]; grant.Token == s.number(token) {
		grant.Token = token
	}
	s.mu.Unlock()
	return s.Store.Release(ctx, grant)
}

type keepsLock struct{ *memlock.Store }

func (s keepsLock) Release(ctx context.Context, grant driver.Grant) error {
	grant.TTL = time.Minute
	if errs := s.Renew(ctx, []driver.Grant{grant}); errs != nil {
		return s.Store.Release(ctx, grant)
	}
	return nil
}

type ignoresToken struct{ *memlock.Store }

func (s ignoresToken) Release(ctx context.Context, grant driver.Grant) error {
	grant.Token = 0
	return s.Store.Release(ctx, grant)
}

type insistsOnToken struct{ *memlock.Store }

func (s insistsOnToken) Release(ctx context.Context, grant driver.Grant) error {
	if grant.Token == 0 {
		return driver.ErrNotHeld
	}
	return s.Store.Release(ctx, grant)
}

type renewsAnyone struct {
	*memlock.Store
	holder *shelf[driver.Owner]
}

func (s renewsAnyone) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.holder.put(req.Name, req.Owner)
	}
	return grant, err
}

func (s renewsAnyone) Renew(ctx context.Context, grants []driver.Grant) []error {
	var all []driver.Grant
	for _, grant := range grants {
		grant.Owner = s.holder.get(grant.Name)
		all = append(all, grant)
	}
	return s.Store.Renew(ctx, all)
}

// lastRenewCounts ends a lock when the TTL of its last Renew has passed, although it was
// acquired for longer.
type lastRenewCounts struct {
	*memlock.Store
	ends *shelf[time.Time]
}

func (s lastRenewCounts) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	endIfOver(ctx, s.Store, s.ends, req.Name)
	return s.Store.Acquire(ctx, req)
}

func (s lastRenewCounts) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := s.Store.Renew(ctx, grants)
	for i, grant := range grants {
		if errs == nil || errs[i] == nil {
			s.ends.put(grant.Name, time.Now().Add(grant.TTL))
		}
	}
	return errs
}

// lastAcquireCounts does the same with the last Acquire of the owner.
type lastAcquireCounts struct {
	*memlock.Store
	ends *shelf[time.Time]
}

func (s lastAcquireCounts) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	endIfOver(ctx, s.Store, s.ends, req.Name)
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		s.ends.put(req.Name, time.Now().Add(req.TTL))
	}
	return grant, err
}

// endIfOver breaks a lock whose TTL has passed.
func endIfOver(ctx context.Context, m *memlock.Store, ends *shelf[time.Time], name string) {
	if end := ends.get(name); !end.IsZero() && time.Now().After(end) {
		_ = m.Break(ctx, name, current(ctx, m, name).Token)
		ends.put(name, time.Time{})
	}
}

type renewsByToken struct{ *memlock.Store }

func (s renewsByToken) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i, grant := range grants {
		if errs[i] = driver.ErrNotHeld; grant.Token != 0 {
			errs[i] = errors.Join(s.Store.Renew(ctx, []driver.Grant{grant})...)
		}
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

type renewsWithNewToken struct{ *memlock.Store }

func (s renewsWithNewToken) Renew(ctx context.Context, grants []driver.Grant) []error {
	for _, grant := range grants {
		if grant.Token == 0 && s.Release(ctx, grant) == nil {
			if _, err := s.Acquire(ctx, driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL}); err != nil {
				return []error{err}
			}
		}
	}
	return s.Store.Renew(ctx, grants)
}

type stopsAtError struct{ *memlock.Store }

func (s stopsAtError) Renew(ctx context.Context, grants []driver.Grant) []error {
	for i := range grants {
		if errs := s.Store.Renew(ctx, grants[i:i+1]); errs != nil {
			return errs
		}
	}
	return nil
}

type nilForEach struct{ *memlock.Store }

func (s nilForEach) Renew(ctx context.Context, grants []driver.Grant) []error {
	if errs := s.Store.Renew(ctx, grants); errs != nil {
		return errs
	}
	return make([]error, len(grants))
}

type lookThenRenew struct{ *memlock.Store }

func (s lookThenRenew) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := s.Store.Renew(ctx, grants)
	if errs != nil || pause(ctx) != nil {
		return errs
	}
	for _, grant := range grants {
		_, _ = s.Store.Acquire(ctx, driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL})
	}
	return nil
}

type ignoresContext struct{ *memlock.Store }

func (s ignoresContext) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return s.Store.Acquire(context.WithoutCancel(ctx), req)
}

type cutOffIsHeld struct{ *memlock.Store }

func (s cutOffIsHeld) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err != nil && ctx.Err() != nil {
		err = &driver.HeldError{Name: req.Name}
	}
	return grant, err
}

type namesAsker struct{ *memlock.Store }

func (s namesAsker) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Holder = req.Holder
	}
	return grant, err
}

type closeReleases struct{ *memlock.Store }

func (s closeReleases) Close() error {
	for info := range s.List(context.Background(), "") {
		_ = s.Break(context.Background(), info.Name, info.Token)
	}
	return s.Store.Close()
}

// closesSilently is a store whose locks end with it, which it does not report.
type closesSilently struct{ closeReleases }

func (s closesSilently) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.SessionBound, traits.ReportsLoss = true, true
	return traits
}

// endsUnreported is the same, and says that it reports no loss.
type endsUnreported struct{ closeReleases }

func (s endsUnreported) Traits() driver.Traits {
	traits := s.Store.Traits()
	traits.SessionBound = true
	return traits
}

// reportsLate is closesSilently, but reports when the locks have ended.
type reportsLate struct {
	closesSilently
	mu   sync.Mutex
	lost []func()
}

func (s *reportsLate) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Lost != nil {
		s.mu.Lock()
		s.lost = append(s.lost, req.Lost)
		s.mu.Unlock()
	}
	return s.Store.Acquire(ctx, req)
}

func (s *reportsLate) Close() error {
	err := s.closesSilently.Close()
	s.mu.Lock()
	lost := s.lost
	s.lost = nil
	s.mu.Unlock()
	for _, report := range lost {
		report()
	}
	return err
}

type moody struct {
	*memlock.Store
	used atomic.Bool
}

func (s *moody) Traits() driver.Traits {
	traits := s.Store.Traits()
	if s.used.Load() {
		traits.MinTTL = time.Second
	}
	return traits
}

func (s *moody) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.used.Store(true)
	return s.Store.Acquire(ctx, req)
}
