package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/crowd"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/once"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// Client acquires locks in one store. It is safe for concurrent use, and one is
// enough for a process. Close it when it is no longer used.
type Client struct {
	store   driver.Store
	traits  driver.Traits
	watcher driver.Watcher       // nil if the store does not implement it
	batcher driver.BatchAcquirer // nil if the store does not implement it

	defaults       settings // of calls without options
	requestTimeout time.Duration
	hooks          Hooks
	logger         *slog.Logger
	slices         contention.SlicePolicy

	clock  *clock.Clock
	shared sync.Map // the *grant of each name that callers may share
	queue  *localqueue.Queue[waiter, occupant, queueState]
	crowds crowd.Crowds // the fair callers
	calls  inFlight
	// cleanups are releases in the background. Each begins during a call that calls counts, so
	// none begins after Close has waited for the calls.
	cleanups   sync.WaitGroup
	watchdog   *watchdog.Watchdog
	unreleased atomic.Int64  // locks that were left to expire since Close began
	closeBy    clock.Instant // when Close stops releasing locks; set when it begins
	closeOnce  once.Once
	closeErr   error
}

// maxPoll is the longest sleep between two polls of a store without notifications.
const maxPoll = time.Second

// New returns a client that keeps its locks in store. The client does not close the
// store, which may serve several clients. A nil opts is fine.
func New(store driver.Store, opts *Options) *Client {
	opts = cmp.Or(opts, &Options{})
	c := &Client{
		store:          store,
		traits:         store.Traits(),
		defaults:       settings{ttl: cmp.Or(opts.TTL, DefaultTTL), margin: -1, wait: -1, holder: withDefaults(opts.Holder)},
		requestTimeout: min(cmp.Or(max(0, opts.RequestTimeout), DefaultRequestTimeout), driver.MaxTTL), // twice of it does not overflow
		hooks:          opts.Hooks,
		logger:         cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		clock:          clock.New(),
		queue:          localqueue.New[waiter, occupant, queueState](),
		calls:          inFlight{closing: make(chan struct{}), drained: make(chan struct{}, 1)},
	}
	c.slices = contention.PolicyFor(0, maxPoll)
	if c.watcher, _ = store.(driver.Watcher); c.watcher != nil {
		c.slices = contention.PolicyFor(c.traits.Reaction, 0)
	}
	c.traits.TokenStep = max(1, c.traits.TokenStep)
	c.batcher, _ = store.(driver.BatchAcquirer)
	c.watchdog = watchdog.New(watchdog.Config{Clock: c.clock, Renew: c.renew, Timeout: c.requestTimeout})
	return c
}

// withDefaults fills in the fields that the user left empty.
func withDefaults(h driver.Holder) driver.Holder {
	host, _ := os.Hostname() // unknown is fine: it is for people only
	h.Host = cmp.Or(h.Host, host)
	h.PID = cmp.Or(h.PID, os.Getpid())
	if len(os.Args) > 0 { // a program may be started without arguments, not even its name
		h.Program = cmp.Or(h.Program, filepath.Base(os.Args[0]))
	}
	return h
}

// Traits returns what the client's store promises.
func (c *Client) Traits() driver.Traits { return c.traits }

// withTimeout returns a context without a cause that limits one call to the store, and its timer, on
// which the caller calls End after the call. The timer of a local store is nil, which End allows.
func (c *Client) withTimeout(ctx context.Context, d time.Duration) (context.Context, *deadline.Context) {
	if c.traits.Local {
		return deadline.WithoutCause(ctx), nil
	}
	limited := deadline.After(ctx, d)
	return limited, limited
}

// explain adds ErrUnreachable and RequestTimeout to the error of a call that was ended by its time
// limit, and not by the context of its caller. If the limit was shorter, the caller had spent the
// rest of a RequestTimeout on waiting for the store before.
func (c *Client) explain(caller, limited context.Context, err error) error {
	if err == nil || limited.Err() == nil || deadline.Passed(caller) != nil || isAnswer(limited, err) {
		return err
	}
	switch {
	case !errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w: no answer within %v: %w", ErrUnreachable, c.requestTimeout, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (no answer within %v)", err, c.requestTimeout)
	}
	return err
}

// isAnswer reports whether the store has rejected a call with ctx, perhaps as the time of the call
// ended. Every error is a rejection unless it says that the store has not answered, or why ctx ended.
func isAnswer(ctx context.Context, err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(ErrUnreachable):
		return false
	case is(ErrDenied), is(ErrMisconfigured), is(ErrMode): // whatever else it wraps
		return true
	}
	cause := context.Cause(ctx)
	return !is(context.Canceled) && !is(context.DeadlineExceeded) && !is(os.ErrDeadlineExceeded) && (cause == nil || !is(cause))
}

// renew is the watchdog's call to the store. An error because its time has ended says that the store
// did not answer.
func (c *Client) renew(ctx context.Context, grants []driver.Grant) []error {
	errs := c.store.Renew(ctx, grants)
	for i, err := range errs {
		if err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnreachable) && !isAnswer(ctx, err) {
			errs[i] = fmt.Errorf("%w: no answer in time: %w", ErrUnreachable, err)
		}
	}
	return errs
}

// inFlight counts the calls that are under way, so that Close can wait for them. It
// costs two atomic additions per call.
type inFlight struct {
	count   atomic.Int64
	closed  atomic.Bool
	closing chan struct{} // closed by the first Close
	drained chan struct{} // tells Close to read count again; has room for one
}

// begin counts a call, unless the client is closed. Either begin sees that it is
// closed, or Close sees the call.
func (f *inFlight) begin() error {
	f.add()
	if f.closed.Load() {
		f.end()
		return ErrClosed
	}
	return nil
}

// add counts a call that a closed client has to finish, too.
func (f *inFlight) add() { f.count.Add(1) }

func (f *inFlight) end() {
	if f.count.Add(-1) == 0 && f.closed.Load() {
		select {
		case f.drained <- struct{}{}:
		default:
		}
	}
}

func (f *inFlight) drain() {
	for f.count.Load() != 0 {
		<-f.drained
	}
}

// settings returns the settings of a call with opts. Calls without options share one value.
func (c *Client) settings(opts []Option) *settings {
	if len(opts) == 0 {
		return &c.defaults
	}
	s := c.defaults
	for _, opt := range opts {
		opt(&s)
	}
	return &s
}
