package drivertest_test

import (
	"context"
	"errors"
	"iter"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes with shared locks and permits, one a store.

// takesTurns grants shared requests exclusively.
type takesTurns struct{ *memlock.Store }

func (s takesTurns) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Mode.Shared = false
	return s.Store.Acquire(ctx, req)
}

// layouts keeps shared and exclusive locks of a name apart.
type layouts struct{ *memlock.Store }

func (s layouts) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if !req.Mode.Shared {
		return s.Store.Acquire(ctx, req)
	}
	name := req.Name
	req.Name += ":shared"
	grant, err := s.Store.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Name = name
	}
	grant.Name = name
	return grant, err
}

func (s layouts) Release(ctx context.Context, grant driver.Grant) error {
	if err := s.Store.Release(ctx, grant); !errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	grant.Name += ":shared"
	return s.Store.Release(ctx, grant)
}

// starvesWriters keeps no place for exclusive requests.
type starvesWriters struct{ *memlock.Store }

func (s starvesWriters) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Queue = req.Queue && req.Fair
	return s.Store.Acquire(ctx, req)
}

// deadWriters keeps the places of exclusive waiters that gave up.
type deadWriters struct{ *memlock.Store }

func (s deadWriters) Release(ctx context.Context, grant driver.Grant) error {
	for info := range s.List(ctx, grant.Name) {
		if info.Mode.Shared && info.Token != grant.Token && grant.Token == 0 {
			return driver.ErrNotHeld
		}
	}
	return s.Store.Release(ctx, grant)
}

// blocksReaders refuses shared holders that ask again while an exclusive request waits.
type blocksReaders struct {
	*memlock.Store
	waiting *shelf[bool]
}

func (s blocksReaders) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.waiting.get(req.Name) && req.Mode.Shared {
		return driver.Grant{}, &driver.HeldError{Name: req.Name}
	}
	grant, err := s.Store.Acquire(ctx, req)
	if !req.Mode.Shared && req.Mode.Limit == 0 && req.Queue {
		s.waiting.put(req.Name, err != nil)
	}
	return grant, err
}

// oneExpiry renews all shares of a name together, as a hash with one expiry does.
type oneExpiry struct {
	*memlock.Store
	shares *shelf[[]driver.Grant]
}

func (s oneExpiry) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil && req.Mode.Shared {
		s.shares.put(req.Name, append(s.shares.get(req.Name), grant))
	}
	return grant, err
}

func (s oneExpiry) Renew(ctx context.Context, grants []driver.Grant) []error {
	for _, grant := range grants {
		for _, share := range s.shares.get(grant.Name) {
			share.TTL = grant.TTL
			s.Store.Renew(ctx, []driver.Grant{share})
		}
	}
	return s.Store.Renew(ctx, grants)
}

// releasesAll ends all shares when one is released, and breaksAll when one is broken.
type releasesAll struct{ *memlock.Store }

func (s releasesAll) Release(ctx context.Context, grant driver.Grant) error {
	err := s.Store.Release(ctx, grant)
	if err == nil {
		endAll(ctx, s.Store, grant.Name)
	}
	return err
}

type breaksAll struct{ *memlock.Store }

func (s breaksAll) Break(ctx context.Context, name string, token uint64) error {
	err := s.Store.Break(ctx, name, token)
	if err == nil {
		endAll(ctx, s.Store, name)
	}
	return err
}

func endAll(ctx context.Context, s *memlock.Store, name string) {
	for info := range s.List(ctx, name) {
		if info.Name == name {
			_ = s.Break(ctx, name, info.Token)
		}
	}
}

// listsOne lists one holder of each name.
type listsOne struct{ *memlock.Store }

func (s listsOne) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		seen := make(map[string]bool)
		for info, err := range s.Store.List(ctx, prefix) {
			if seen[info.Name] {
				continue
			}
			seen[info.Name] = true
			if !yield(info, err) {
				return
			}
		}
	}
}

// twoSteps releases the exclusive lock and takes a shared one.
type twoSteps struct{ *memlock.Store }

func (s twoSteps) Downgrade(ctx context.Context, grant driver.Grant) error {
	if err := s.Store.Release(ctx, grant); err != nil {
		return err
	}
	_ = pause(ctx)
	_, err := s.Store.Acquire(ctx, driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL, Mode: driver.Mode{Shared: true}})
	return err
}

// quietDowngrade notifies no waiter, as Redisson does.
type quietDowngrade struct {
	*memlock.Store
	downgrading *shelf[bool]
}

func (s quietDowngrade) Downgrade(ctx context.Context, grant driver.Grant) error {
	s.downgrading.put(grant.Name, true)
	defer s.downgrading.put(grant.Name, false)
	return s.Store.Downgrade(ctx, grant)
}

func (s quietDowngrade) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	return s.Store.Watch(ctx, req, func() { // must not call the store, which notifies with its mutex held
		if !s.downgrading.get(req.Name) {
			wake()
		}
	})
}

// oneMore admits a holder more than the limit.
type oneMore struct{ *memlock.Store }

func (s oneMore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Mode.Limit > 0 {
		req.Mode.Limit++
	}
	return s.Store.Acquire(ctx, req)
}

// lastLimit counts by the limit of the last request.
type lastLimit struct{ *memlock.Store }

func (s lastLimit) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	holders := 0
	for info := range s.List(ctx, req.Name) {
		if info.Name == req.Name {
			holders++
		}
	}
	if limit := req.Mode.Limit; limit > 0 && holders >= limit {
		return driver.Grant{}, &driver.HeldError{Name: req.Name}
	} else if limit > 0 {
		req.Mode.Limit = 1000
	}
	return s.Store.Acquire(ctx, req)
}

// keepsLimit refuses another limit although the name is free.
type keepsLimit struct {
	*memlock.Store
	modes *shelf[driver.Mode]
	used  *shelf[bool]
}

func (s keepsLimit) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if mode := s.modes.get(req.Name); s.used.get(req.Name) && mode.Limit != req.Mode.Limit {
		return driver.Grant{}, &driver.ModeError{Name: req.Name, Mode: mode}
	}
	s.modes.put(req.Name, req.Mode)
	s.used.put(req.Name, true)
	return s.Store.Acquire(ctx, req)
}
