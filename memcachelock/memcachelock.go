package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/dlock-go/dlock/internal/deadline"
)

// Options of a store. The zero value is fine.
type Options struct {
	// Timeout limits a call whose context has no deadline; default 5 seconds.
	Timeout time.Duration

	// RestartDelay is how long a server that has just started gives no locks,
	// because it does not know who held them before. Zero is as long as the TTL
	// that is asked for, which is right if everybody uses the same TTL for a
	// lock. Negative is not at all: then a restart breaks locks. With less than a
	// second a token may also be given again, if the server restarts twice in one.
	RestartDelay time.Duration
}

// DefaultTimeout is the limit of a call unless Options.Timeout says otherwise.
const DefaultTimeout = 5 * time.Second

// Store keeps locks in memcached. Create one with [New].
type Store struct {
	pool    pool
	delay   time.Duration
	watches watches
	// attempts undoes acquisitions whose caller left before the outcome was known.
	attempts *attempts.Log

	ctx    context.Context // of the background work; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
	closed atomic.Bool
}

// New returns a store in the memcached at addr, which is host:port. It makes no
// calls. A nil opts is fine.
func New(addr string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%q is not host:port", addr)
	}
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("option Timeout (%v) cannot be negative", opts.Timeout)
	}
	s := &Store{pool: pool{addr: addr, timeout: opts.Timeout, busy: make(chan struct{}, maxConns)}, delay: opts.RestartDelay}
	if s.pool.timeout == 0 {
		s.pool.timeout = DefaultTimeout
	}
	s.watches.init()
	s.attempts = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return s.release(ctx, &driver.Grant{Name: name, Owner: owner})
	})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Traits says what memcached promises.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:         "memcached",
		Fencing:       driver.FencingClockBound,
		WatchesExpiry: true,
		Handover:      pollInterval / 2,
		MinTTL:        time.Second,
		MaxTTL:        maxTTL,
		Granularity:   5 * time.Second, // what clock.end adds, a second until it is noticed, and half of one for the network
	}
}

// Close ends what the store started and waits for it: for up to a second each, for the
// answers to acquisitions whose callers have left, and to undo the last of them. The error
// says how many of these may be left to expire.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	s.work.Wait()
	s.pool.settle()
	err := s.attempts.Close()
	s.pool.close()
	return err
}

// usable says whether a call may begin.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// call runs commands, one after another, on one connection. If that is silent, it runs
// them again on another one: fn may be called twice.
func (s *Store) call(ctx context.Context, fn func(*conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.unlessClosed(s.run(ctx, nil, fn))
}

// unlessClosed returns err, or ErrClosed for a call that Close may have cut off.
func (s *Store) unlessClosed(err error) error {
	if err != nil && s.closed.Load() && !isAnswer(err) {
		return driver.ErrClosed
	}
	return err
}

// run is call also while the store is closed.
func (s *Store) run(ctx context.Context, leave leave, fn func(*conn) error) error {
	err := s.pool.with(ctx, leave, fn)
	if errors.Is(err, errSilent) {
		err = s.pool.with(ctx, leave, fn)
	}
	if isAnswer(err) {
		return err
	}
	if cause := deadline.Passed(ctx); cause != nil {
		return cause
	}
	return err
}

// isAnswer reports whether err is an outcome that the server told.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld)
}

// maxTTL is more than anybody needs. What is longer by a minute some of memcached's
// commands take for a date.
const maxTTL = 30*24*time.Hour - time.Minute
