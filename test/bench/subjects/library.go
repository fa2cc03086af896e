package subjects

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Opener opens dlock's own store.
type Opener func(ctx context.Context, at Place) (Watched, error)

// Watched is a store that notifies waiters, as all of dlock's stores do.
type Watched interface {
	driver.Store
	driver.Watcher
}

// byURL opens a store as dlock's users do. See Place.url for the pattern.
func byURL[S Watched, Options any](
	open func(ctx context.Context, url string, opts *Options) (S, error), pattern string, opts *Options,
) Opener {
	return func(ctx context.Context, at Place) (Watched, error) { return open(ctx, at.url(pattern), opts) }
}

// direct is a subject that calls the store without the library. pause waits
// between two attempts.
func direct(name string, open Opener, pause func(context.Context) error) Subject {
	return Subject{Name: name, Open: func(ctx context.Context, at Place) (*Client, error) {
		inner, err := open(ctx, at)
		if err != nil {
			return nil, err
		}
		store, commands := countRemote(inner)
		newWorker := func(name string) Worker {
			req := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: dlock.DefaultTTL}
			var grant driver.Grant
			return Worker{
				Lock: func(ctx context.Context) (err error) {
					for {
						grant, err = store.Acquire(ctx, req)
						if err == nil || !errors.Is(err, driver.ErrHeld) {
							return err
						}
						if err := pause(ctx); err != nil {
							return err
						}
					}
				},
				Unlock: func(ctx context.Context) error { return store.Release(ctx, grant) },
			}
		}
		return &Client{workers(newWorker), commands, inner.Close}, nil
	}}
}

// library is a subject that uses dlock as its users do.
func library(name string, open Opener) Subject {
	return Subject{Name: name, Open: func(ctx context.Context, at Place) (*Client, error) {
		inner, err := open(ctx, at)
		if err != nil {
			return nil, err
		}
		store, commands := countRemote(inner)
		client := dlock.New(store, nil)
		newWorker := func(_ context.Context, want Want) (Worker, error) {
			var opts []dlock.Option
			if want.Shared {
				opts = append(opts, dlock.WithShared())
			}
			if want.Limit > 0 {
				opts = append(opts, dlock.WithLimit(want.Limit))
			}
			var lease *dlock.Lease
			return Worker{
				Lock: func(ctx context.Context) (err error) {
					lease, err = client.Lock(ctx, want.Name, opts...)
					return err
				},
				Unlock: func(ctx context.Context) error { return lease.Unlock(ctx) },
			}, nil
		}
		return &Client{newWorker, commands, func() error { return errors.Join(client.Close(), inner.Close()) }}, nil
	}}
}

// countRemote counts the calls to a store. It does not count those to a store
// inside the process, because counting would be a large part of the measured time.
func countRemote(s Watched) (driver.Store, func() uint64) {
	if s.Traits().Local {
		return s, nil
	}
	counts := Count(s)
	return counts, counts.Calls.Load
}

// Counted forwards calls to a store and counts them. It hides the extensions that
// no case uses. It keeps Watcher, without which waiting works differently.
type Counted struct {
	Watched
	Calls    atomic.Uint64
	Renewals atomic.Uint64 // counts grants; one call renews many

	mu       sync.Mutex
	rejected map[driver.Owner]bool // owners whose acquisition failed
}

// Count returns a store that counts, wherever the inner store is.
func Count(inner Watched) *Counted {
	return &Counted{Watched: inner, rejected: make(map[driver.Owner]bool)}
}

// Contenders returns the number of owners that the store rejected since the last
// call.
func (c *Counted) Contenders() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.rejected)
	clear(c.rejected)
	return n
}

// Acquire implements driver.Store.
func (c *Counted) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	c.Calls.Add(1)
	grant, err := c.Watched.Acquire(ctx, req)
	if err != nil {
		c.mu.Lock()
		c.rejected[req.Owner] = true
		c.mu.Unlock()
	}
	return grant, err
}

// Renew implements driver.Store.
func (c *Counted) Renew(ctx context.Context, grants []driver.Grant) []error {
	c.Calls.Add(1)
	c.Renewals.Add(uint64(len(grants)))
	return c.Watched.Renew(ctx, grants)
}

// Release implements driver.Store.
func (c *Counted) Release(ctx context.Context, grant driver.Grant) error {
	c.Calls.Add(1)
	return c.Watched.Release(ctx, grant)
}

// Watch implements driver.Watcher.
func (c *Counted) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	c.Calls.Add(1)
	return c.Watched.Watch(ctx, req, wake)
}
