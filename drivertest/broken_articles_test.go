package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// The mistakes of articles about distributed locks, each in a store that is
// otherwise sound. Where an article's code makes two round trips, there is a
// pause of roundTrip between the two steps.
const roundTrip = 3 * time.Millisecond

func pause(ctx context.Context) error {
	select {
	case <-time.After(roundTrip):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shelf keeps something for each name.
type shelf[V any] struct {
	mu sync.Mutex
	of map[string]V
}

func newShelf[V any]() *shelf[V] { return &shelf[V]{of: make(map[string]V)} }

func (s *shelf[V]) get(name string) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[name]
}

func (s *shelf[V]) put(name string, v V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[name] = v
}

// current is GET: the holder of name. The token is zero if the name is free.
func current(ctx context.Context, m *memlock.Store, name string) driver.Info {
	for info, err := range m.List(ctx, name) {
		if err == nil && info.Name == name {
			return info
		}
	}
	return driver.Info{}
}

// remove is DEL: name is free, whichever owner held it.
func remove(ctx context.Context, m *memlock.Store, name string) error {
	return m.Break(ctx, name, current(ctx, m, name).Token)
}

// neverExpires: setnx(key, value) and nothing else.
type neverExpires struct{ *memlock.Store }

func (s neverExpires) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL = time.Hour
	grant, err := s.Store.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

// setThenExpire: setnx(key, value); expire(key, ttl).
type setThenExpire struct{ *memlock.Store }

func (s setThenExpire) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL = time.Hour
	grant, err := s.Store.Acquire(ctx, req)
	if err != nil {
		return grant, err
	}
	if err := pause(ctx); err != nil {
		return driver.Grant{}, err
	}
	grant.TTL = ttl
	if errs := s.Store.Renew(ctx, []driver.Grant{grant}); errs != nil {
		return driver.Grant{}, errs[0]
	}
	return grant, nil
}

// plainDelete: del(key), in a finally block.
type plainDelete struct{ *memlock.Store }

func (s plainDelete) Release(ctx context.Context, grant driver.Grant) error {
	return remove(ctx, s.Store, grant.Name)
}

// getThenDelete: if get(key) == value { del(key) }.
type getThenDelete struct{ *memlock.Store }

func (s getThenDelete) Release(ctx context.Context, grant driver.Grant) error {
	info := current(ctx, s.Store, grant.Name)
	if grant.Token == 0 || info.Token != grant.Token {
		return s.Store.Release(ctx, grant)
	}
	if err := pause(ctx); err != nil {
		return err
	}
	return remove(ctx, s.Store, grant.Name)
}

// clientClock: the value is currentTimeMillis() + ttl; a client that finds a value in the
// past takes the lock with getset(key, value).
type clientClock struct {
	*memlock.Store
	values *shelf[time.Time]
	skew   time.Duration
}

func (s clientClock) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	now, ttl := time.Now().Add(s.skew), req.TTL
	req.TTL = 24 * time.Hour
	grant, err := s.Store.Acquire(ctx, req)
	if errors.Is(err, driver.ErrHeld) && s.values.get(req.Name).Before(now) {
		_ = remove(ctx, s.Store, req.Name)
		grant, err = s.Store.Acquire(ctx, req)
	}
	if err == nil {
		s.values.put(req.Name, now.Add(ttl))
		grant.TTL = ttl
	}
	return grant, err
}

func (s clientClock) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i, grant := range grants {
		now := time.Now().Add(s.skew)
		if s.values.get(grant.Name).Before(now) || current(ctx, s.Store, grant.Name).Token != grant.Token {
			errs[i] = driver.ErrNotHeld
			continue
		}
		s.values.put(grant.Name, now.Add(grant.TTL))
	}
	if errors.Join(errs...) == nil {
		return nil
	}
	return errs
}

// renewBySet: a timer that calls set(key, value, ttl), whether the key is
// still there or not.
type renewBySet struct{ *memlock.Store }

func (s renewBySet) Renew(ctx context.Context, grants []driver.Grant) []error {
	for _, grant := range grants {
		if current(ctx, s.Store, grant.Name).Token != grant.Token {
			_ = remove(ctx, s.Store, grant.Name)
		}
		_, _ = s.Store.Acquire(ctx, driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL})
	}
	return nil
}

// selectThenInsert: select ... where name = ?; if there is no row, write one.
type selectThenInsert struct{ *memlock.Store }

func (s selectThenInsert) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	found := current(ctx, s.Store, req.Name)
	if found.Token != 0 {
		return s.Store.Acquire(ctx, req)
	}
	if err := pause(ctx); err != nil {
		return driver.Grant{}, err
	}
	_ = remove(ctx, s.Store, req.Name) // no unique key stands in the way
	return s.Store.Acquire(ctx, req)
}

// counted: hincrby(key, owner, 1) for every Acquire, and -1 for every Release.
// Re-entry belongs to the client, which knows its callers; a retry is no re-entry.
type counted struct {
	*memlock.Store
	count *shelf[int]
}

func (s counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if err == nil {
		key := req.Name + req.Owner.Hex()
		s.count.put(key, s.count.get(key)+1)
	}
	return grant, err
}

func (s counted) Release(ctx context.Context, grant driver.Grant) error {
	key := grant.Name + grant.Owner.Hex()
	if n := s.count.get(key); n > 1 {
		s.count.put(key, n-1)
		return nil
	}
	return s.Store.Release(ctx, grant)
}

// partialBatch: a pipeline of setnx, one for each key, and what could be had
// stays when the rest could not.
type partialBatch struct{ *memlock.Store }

func (s partialBatch) AcquireAll(ctx context.Context, reqs []driver.Request) (grants []driver.Grant, refusal error) {
	for _, req := range reqs {
		grant, err := s.Store.Acquire(ctx, req)
		if err != nil {
			refusal = err
		}
		grants = append(grants, grant)
	}
	return grants, refusal
}
