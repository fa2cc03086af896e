// Package memlock keeps locks in the memory of one process. It is the
// reference for all other stores, and what belongs into unit tests of programs
// that use dlock: clients that share a Store exclude each other as clients on
// different machines would.
package memlock

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store keeps locks in memory. The zero value is not usable; see [New].
//
// It implements every extension of package driver but Diagnoser.
type Store struct {
	start time.Time // times below are durations since then, on the monotonic clock
	id    string    // which one it is

	mu      sync.Mutex
	locks   map[string]*lock // held, expired, or free: see sweep
	last    uint64           // the last token: one counter for all names, so that forgetting a name resets nothing
	sweepAt int              // the number of records that makes looking for useless ones worth it

	queues  map[string][]place     // fair waiters in order of arrival
	watches map[string][]*watching // who wants to be woken
}

type lock struct {
	owner   driver.Owner
	token   uint64 // zero when free
	since   time.Duration
	expires time.Duration
	holder  driver.Holder
}

func (l *lock) held(now time.Duration) bool {
	return l != nil && l.token != 0 && now < l.expires
}

type place struct {
	owner   driver.Owner
	expires time.Duration
}

// sweepFloor keeps small stores from looking for useless records at all.
const sweepFloor = 1024

// New returns an empty store.
func New() *Store {
	return &Store{
		start:   time.Now(),
		id:      driver.NewOwner().Hex(),
		locks:   make(map[string]*lock),
		sweepAt: sweepFloor,
		queues:  make(map[string][]place),
		watches: make(map[string][]*watching),
	}
}

// Format prints no more than what it is: in it are the owners of locks.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "memlock.Store") }

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:   "memory",
		Fencing: driver.FencingStrong,
		Fair:    true,
		Local:   true,

		OneMachine: true,
		MinTTL:     time.Millisecond,
	}
}

// Close implements driver.Store. There is nothing to close: a store in memory
// lives as long as somebody refers to it.
func (s *Store) Close() error { return nil }

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.locks[req.Name]
	if err := s.refusal(l, &req, now); err != nil {
		s.enqueue(&req, now)
		return driver.Grant{}, err
	}
	return s.grant(l, &req, now), nil
}

// AcquireAll implements driver.BatchAcquirer.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range reqs {
		if err := s.refusal(s.locks[reqs[i].Name], &reqs[i], now); err != nil {
			return nil, err
		}
	}
	grants := make([]driver.Grant, len(reqs))
	for i := range reqs {
		grants[i] = s.grant(s.locks[reqs[i].Name], &reqs[i], now)
	}
	return grants, nil
}

// refusal says why req, whose record is l, cannot be granted now; nil if it can.
func (s *Store) refusal(l *lock, req *driver.Request, now time.Duration) error {
	if l.held(now) {
		if l.owner == req.Owner {
			return nil
		}
		return &driver.HeldError{Name: req.Name, Token: l.token, Holder: l.holder, Remaining: l.expires - now}
	}
	if req.Fair {
		if head, ok := s.head(req.Name, now); ok && head.owner != req.Owner {
			return &driver.HeldError{Name: req.Name, Remaining: head.expires - now}
		}
	}
	return nil
}

func (s *Store) grant(l *lock, req *driver.Request, now time.Duration) driver.Grant {
	if l == nil {
		if len(s.locks) >= s.sweepAt {
			s.sweep(now)
		}
		l = new(lock)
		s.locks[req.Name] = l
	}
	if !l.held(now) {
		s.last = max(s.last+1, req.Floor)
		*l = lock{owner: req.Owner, token: s.last, since: now, holder: req.Holder}
	}
	l.expires = max(l.expires, now+req.TTL)
	if req.Fair {
		s.dequeue(req.Name, req.Owner)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: l.token, TTL: req.TTL}
}

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var errs []error
	fail := func(i int, err error) {
		if errs == nil {
			errs = make([]error, len(grants))
		}
		errs[i] = err
	}
	if ctx.Err() != nil {
		for i := range grants {
			fail(i, context.Cause(ctx))
		}
		return errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range grants {
		g := &grants[i]
		if l := s.locks[g.Name]; l.held(now) && l.owner == g.Owner {
			l.expires = max(l.expires, now+g.TTL)
		} else {
			fail(i, driver.ErrNotHeld)
		}
	}
	return errs
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if len(s.queues) > 0 && s.dequeue(grant.Name, grant.Owner) {
		defer s.wake(grant.Name) // the one behind may be the head now
	}
	l := s.locks[grant.Name]
	if !l.held(s.now()) || l.owner != grant.Owner || (grant.Token != 0 && l.token != grant.Token) {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	s.free(grant.Name, l)
	waited := len(s.watches) > 0
	s.mu.Unlock()
	if waited {
		s.wake(grant.Name)
	}
	return nil
}

// Pass implements driver.Passer.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l := s.locks[grant.Name]
	if !l.held(now) || l.owner != grant.Owner || l.token != grant.Token {
		return driver.Grant{}, driver.ErrNotHeld
	}
	*l = lock{}
	return s.grant(l, &req, now), nil
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	l := s.locks[name]
	if !l.held(s.now()) || l.token != token {
		s.mu.Unlock()
		return driver.ErrNotHeld
	}
	s.free(name, l)
	s.mu.Unlock()
	s.wake(name)
	return nil
}

// free ends a lock. It leaves an empty record where there are few, since a name
// that was locked is often locked again.
func (s *Store) free(name string, l *lock) {
	if *l = (lock{}); len(s.locks) > sweepFloor {
		delete(s.locks, name)
	}
}

// sweep forgets the records of locks that are free or expired. It runs when the
// number of records has doubled since the last time, which costs each
// acquisition a constant and keeps no more than that many useless ones.
func (s *Store) sweep(now time.Duration) {
	for name, l := range s.locks {
		if !l.held(now) {
			delete(s.locks, name)
		}
	}
	s.sweepAt = max(sweepFloor, 2*len(s.locks))
}

func (s *Store) now() time.Duration { return time.Since(s.start) }
