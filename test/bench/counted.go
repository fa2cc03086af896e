package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// counted passes calls on to a store and counts them. It hides the extensions
// that no case uses, but not Watcher and Passer, without which waiting is something
// else.
type counted struct {
	inner driver.Store
	calls atomic.Uint64
	// renewals counts grants, of which one call has many.
	renewals atomic.Uint64

	mu      sync.Mutex
	refused map[driver.Owner]bool // owners that were told to wait
}

func count(inner driver.Store) *counted {
	return &counted{inner: inner, refused: make(map[driver.Owner]bool)}
}

// store returns what the subject calls. A store whose calls stay within the
// process is not counted: the counting would be a good part of what is measured.
func (c *counted) store() driver.Store {
	if c.inner.Traits().Local {
		return c.inner
	}
	return c.always()
}

// always counts whatever the store is.
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

// contenders is how many owners the store had to refuse since the last call.
func (c *counted) contenders() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.refused)
	clear(c.refused)
	return n
}

func (c *counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.calls.Add(1)
	grant, err := c.inner.Acquire(ctx, req)
	if err != nil {
		c.mu.Lock()
		c.refused[req.Owner] = true
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
