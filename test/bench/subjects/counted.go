package subjects

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// Counted forwards calls to a store and counts them. It hides the extensions that
// no case uses. It keeps Watcher, without which waiting works differently.
type Counted struct {
	inner driver.Store
	Calls atomic.Uint64
	// Renewals counts grants; one call renews many.
	Renewals atomic.Uint64

	mu       sync.Mutex
	rejected map[driver.Owner]bool // owners whose acquisition failed
}

func Count(inner driver.Store) *Counted {
	return &Counted{inner: inner, rejected: make(map[driver.Owner]bool)}
}

// store returns the store that the subject calls. It does not count the calls of
// a store inside the process, because counting would be a large part of the
// measured time.
func (c *Counted) store() driver.Store {
	if c.inner.Traits().Local {
		return c.inner
	}
	return c.Always()
}

// Always returns a store that counts, whatever the inner store is.
func (c *Counted) Always() driver.Store {
	watcher, ok := c.inner.(driver.Watcher)
	if !ok {
		return c
	}
	return &countedWatcher{c, watcher}
}

func (c *Counted) Commands() (uint64, bool) { return c.Calls.Load(), !c.inner.Traits().Local }

// Contenders returns the number of owners that the store rejected since the last
// call.
func (c *Counted) Contenders() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.rejected)
	clear(c.rejected)
	return n
}

func (c *Counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.Calls.Add(1)
	grant, err := c.inner.Acquire(ctx, req)
	if err != nil {
		c.mu.Lock()
		c.rejected[req.Owner] = true
		c.mu.Unlock()
	}
	return grant, err
}

func (c *Counted) Renew(ctx context.Context, grants []driver.Grant) []error {
	c.Calls.Add(1)
	c.Renewals.Add(uint64(len(grants)))
	return c.inner.Renew(ctx, grants)
}

func (c *Counted) Release(ctx context.Context, grant driver.Grant) error {
	c.Calls.Add(1)
	return c.inner.Release(ctx, grant)
}

func (c *Counted) Traits() driver.Traits { return c.inner.Traits() }
func (c *Counted) Close() error          { return c.inner.Close() }

type countedWatcher struct {
	*Counted
	watcher driver.Watcher
}

func (c *countedWatcher) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	c.Calls.Add(1)
	return c.watcher.Watch(ctx, req, wake)
}
