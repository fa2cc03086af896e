package memcachelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/tokenstep"
)

// Options of a store. The zero value is fine.
type Options struct {
	// Timeout limits every call, as its context does; default 5 seconds.
	Timeout time.Duration

	// RestartDelay is how long a server that has just started grants no locks, because it does
	// not know which locks were held before. Zero means the TTL of the request, which is right
	// if all programs use the same TTL for a lock. A negative value grants at once: then a
	// restart breaks locks. With less than a second a token may also repeat, if the server
	// restarts twice within a second.
	RestartDelay time.Duration
}

// DefaultTimeout is the limit of a call unless Options.Timeout says otherwise.
const DefaultTimeout = 5 * time.Second

// maxTTL is memcached's longest time span. The store sends dates: see serverClock.
const maxTTL = 30*24*time.Hour - time.Minute

// Store keeps locks in memcached. Create one with [New] or [Open].
type Store struct {
	location     driver.Location
	pool         pool
	batcher      *batcher
	restartDelay time.Duration
	waiters      waiters
	attempts     *attempts.Log // releases attempts whose caller left before the outcome was known

	ctx    context.Context // of the background work; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
	closed atomic.Bool
}

// New returns a store in the memcached at addr, which is host:port. It makes no calls. A nil
// opts is fine.
func New(addr string, opts *Options) (*Store, error) {
	opts = cmp.Or(opts, &Options{})
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%q is not host:port", addr)
	}
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("option Timeout (%v) cannot be negative", opts.Timeout)
	}
	s := &Store{restartDelay: opts.RestartDelay, pool: pool{
		addr:    addr,
		timeout: cmp.Or(opts.Timeout, DefaultTimeout),
		busy:    make(chan struct{}, maxConns),
		drains:  make(chan struct{}, maxDrains),
	}}
	s.attempts = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return s.release(ctx, &driver.Grant{Name: name, Owner: owner})
	})
	s.batcher = newBatcher(&s.pool)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:         "memcached",
		Fencing:       driver.FencingClockBound,
		TokenStep:     tokenstep.Size,
		WatchesExpiry: true,
		Reaction:      pollInterval / 2,
		MinTTL:        time.Second,
		MaxTTL:        maxTTL,
		Granularity:   5 * time.Second, // what serverClock.expiry adds, a second until it is noticed, and half of one for the network
	}
}

// Close implements driver.Store. It waits for up to a second for the answers to calls that share a
// round trip, for up to a second for the answers to other attempts whose callers have left, and for
// up to a second to release the last of these attempts. The error says how many of them are left to
// expire.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	s.work.Wait()
	s.batcher.close(maxSilence)
	for range maxDrains { // waits for the last drain, and lets no more begin
		s.pool.drains <- struct{}{}
	}
	err := s.attempts.Close()
	s.pool.close()
	return err
}

// usable returns why a call must not begin, or nil.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// call is run, but a closed store rejects it.
func (s *Store) call(ctx context.Context, fn func(*conn) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.run(ctx, nil, fn)
}

// run calls fn with a connection. If that connection is silent, run calls fn again with another
// one. See pool.with for leave.
func (s *Store) run(ctx context.Context, leave leave, fn func(*conn) error) error {
	err := s.pool.with(ctx, leave, fn)
	if errors.Is(err, errSilent) {
		err = s.pool.with(ctx, leave, fn)
	}
	return s.explain(ctx, err)
}

// explain returns the error of a call to its caller.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case isOutcome(err):
		return err
	case s.closed.Load(): // Close may have interrupted it
		return driver.ErrClosed
	case errors.Is(err, driver.ErrMisconfigured):
		return err
	}
	if cause := deadline.Passed(ctx); cause != nil {
		return fmt.Errorf("%w: memcached: no answer: %w", driver.ErrUnreachable, cause)
	}
	return err
}
