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
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/contention"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/localqueue"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// Client acquires locks in one store. It is safe for concurrent use, and one is
// enough for a process. Close it when it is no longer used.
type Client struct {
	store   driver.Store
	traits  driver.Traits
	watcher driver.Watcher       // nil if the store does not implement it
	batcher driver.BatchAcquirer // nil if the store does not implement it

	ttl            time.Duration
	requestTimeout time.Duration
	holder         driver.Holder
	hooks          Hooks
	logger         *slog.Logger
	slices         contention.SlicePolicy

	clock *clock.Clock
	queue *localqueue.Queue[hold, queueState]
	dog   *watchdog.Watchdog
	calls inFlight
	// cleanups are releases in the background. A cleanup begins inside a counted call, so
	// that Close waits for it.
	cleanups  sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// New returns a client that keeps its locks in store. The client does not close the
// store, which may serve several clients. A nil opts is fine.
func New(store driver.Store, opts *Options) *Client {
	opts = cmp.Or(opts, &Options{})
	c := &Client{
		store:          store,
		traits:         store.Traits(),
		ttl:            cmp.Or(opts.TTL, DefaultTTL),
		requestTimeout: min(cmp.Or(max(0, opts.RequestTimeout), DefaultRequestTimeout), driver.MaxTTL), // twice of it does not overflow
		holder:         describe(opts.Holder),
		hooks:          opts.Hooks,
		logger:         cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)),
		clock:          clock.New(),
		queue:          localqueue.New[hold, queueState](),
		calls:          inFlight{closing: make(chan struct{}), drained: make(chan struct{}, 1)},
	}
	c.watcher, _ = store.(driver.Watcher)
	c.slices = contention.PolicyFor(c.traits.Reaction, 0)
	if c.watcher == nil {
		c.slices = contention.PolicyFor(0, maxPoll)
	}
	c.batcher, _ = store.(driver.BatchAcquirer)
	c.dog = watchdog.New(watchdog.Config{Clock: c.clock, Renew: store.Renew, Timeout: c.requestTimeout})
	return c
}

// describe fills in what the caller left out of its description.
func describe(h driver.Holder) driver.Holder {
	host, _ := os.Hostname() // unknown is fine: it is for people only
	h.Host = cmp.Or(h.Host, host)
	h.PID = cmp.Or(h.PID, os.Getpid())
	h.Program = cmp.Or(h.Program, filepath.Base(os.Args[0]))
	return h
}

// Traits returns what the client's store promises.
func (c *Client) Traits() driver.Traits { return c.traits }

// limited returns a context that limits one call to the store.
func (c *Client) limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if c.traits.Local {
		return ctx, func() {}
	}
	limited := deadline.After(ctx, d)
	return limited, limited.End
}

// explain adds ErrUnreachable and the limit to the error of a call that its own limit
// ended, not its caller's context.
func (c *Client) explain(caller, limited context.Context, err error) error {
	if err == nil || limited.Err() == nil || deadline.Passed(caller) != nil {
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
