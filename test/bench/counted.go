package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// counted forwards calls to a store and counts them. It hides the extensions that
// no case uses. It keeps Watcher and Passer, without which waiting works
// differently.
type counted struct {
	inner driver.Store
	calls atomic.Uint64
	// renewals counts grants; one call renews many.
	renewals atomic.Uint64

	mu       sync.Mutex
	rejected map[driver.Owner]bool // owners whose acquisition failed
}

func count(inner driver.Store) *counted {
	return &counted{inner: inner, rejected: make(map[driver.Owner]bool)}
}

// store returns the store that the subject calls. It does not count the calls of
// a store inside the process, because counting would be a large part of the
// measured time.
func (c *counted) store() driver.Store {
	if c.inner.Traits().Local {
		return c.inner
	}
	return c.always()
}

// always returns a store that counts, whatever the inner store is.
func (c *counted) always() driver.Store {
	watcher, ok := c.inner.(driver.Watcher)
	if !ok {
		return c
	}
	watches := &countedWatcher{c, watcher}
	if passer, ok := c.inner.(driver.Passer); ok {
		return &countedPasser{watches, passer}
	}
	return watches
}

func (c *counted) commands() (uint64, bool) { return c.calls.Load(), !c.inner.Traits().Local }

// contenders returns the number of owners that the store rejected since the last
// call.
func (c *counted) contenders() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.rejected)
	clear(c.rejected)
	return n
}

func (c *counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.calls.Add(1)
	grant, err := c.inner.Acquire(ctx, req)
	if err != nil {
		c.mu.Lock()
		c.rejected[req.Owner] = true
		c.mu.Unlock()
	}
	return grant, err
}

func (c *counted) Renew(ctx context.Context, grants []driver.Grant) []error {
	c.calls.Add(1)
	c.renewals.Add(uint64(len(grants)))
	return c.inner.Renew(ctx, grants)
}

func (c *counted) Release(ctx context.Context, grant driver.Grant) error {
	c.calls.Add(1)
	return c.inner.Release(ctx, grant)
}

func (c *counted) Traits() driver.Traits { return c.inner.Traits() }
func (c *counted) Close() error          { return c.inner.Close() }

type countedWatcher struct {
	*counted
	watcher driver.Watcher
}

func (c *countedWatcher) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	c.calls.Add(1)
	return c.watcher.Watch(ctx, req, wake)
}

type countedPasser struct {
	*countedWatcher
	passer driver.Passer
}

func (c *countedPasser) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	c.calls.Add(1)
	return c.passer.Pass(ctx, grant, req)
}
