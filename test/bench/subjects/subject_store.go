package subjects

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// opener opens the shared state of a round for dlock's own store.
type opener func(dir string) (connectStore func(context.Context) (opened, error), err error)

// opened is a store, and what has to be closed after it.
type opened struct {
	driver.Store
	closeMore func() error
}

func (o opened) Close() error { return errors.Join(o.Store.Close(), o.closeMore()) }

// direct is a subject that calls the store without the library. pause waits
// between two attempts.
func direct(name string, open opener, pause func(context.Context) error) Subject {
	return onStore(name, open, func(o opened, counts *Counted) Client {
		return &directClient{storeClient{o, counts}, pause}
	})
}

// library is a subject that uses dlock as its users do.
func library(name string, open opener) Subject {
	return onStore(name, open, func(o opened, counts *Counted) Client {
		return &libraryClient{storeClient{o, counts}, dlock.New(counts.store(), nil)}
	})
}

func onStore(name string, open opener, wrap func(opened, *Counted) Client) Subject {
	return Subject{Name: name, Open: func(dir string) (func(context.Context) (Client, error), error) {
		connect, err := open(dir)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Client, error) {
			o, err := connect(ctx)
			if err != nil {
				return nil, err
			}
			return wrap(o, Count(o.Store)), nil
		}, nil
	}}
}

type storeClient struct {
	opened opened
	counts *Counted
}

func (c *storeClient) Commands() (uint64, bool) { return c.counts.Commands() }
func (c *storeClient) Close() error             { return c.opened.Close() }

type directClient struct {
	storeClient
	pause func(context.Context) error
}

func (c *directClient) Worker(_ context.Context, name string) (Worker, error) {
	return &directWorker{
		store: c.counts.store(),
		pause: c.pause,
		req:   driver.Request{Name: name, Owner: driver.NewOwner(), TTL: dlock.DefaultTTL},
	}, nil
}

type directWorker struct {
	store driver.Store
	pause func(context.Context) error
	req   driver.Request
	grant driver.Grant
}

func (w *directWorker) Lock(ctx context.Context) (err error) {
	for {
		w.grant, err = w.store.Acquire(ctx, w.req)
		if err == nil || !errors.Is(err, driver.ErrHeld) {
			return err
		}
		if err := w.pause(ctx); err != nil {
			return err
		}
	}
}

func (w *directWorker) Unlock(ctx context.Context) error { return w.store.Release(ctx, w.grant) }

type libraryClient struct {
	storeClient
	client *dlock.Client
}

func (c *libraryClient) Worker(_ context.Context, name string) (Worker, error) {
	return &libraryWorker{client: c.client, name: name}, nil
}

func (c *libraryClient) ModeWorker(_ context.Context, name string, mode driver.Mode) (Worker, error) {
	w := &libraryWorker{client: c.client, name: name}
	if mode.Shared {
		w.opts = append(w.opts, dlock.WithShared())
	}
	if mode.Limit > 0 {
		w.opts = append(w.opts, dlock.WithLimit(mode.Limit))
	}
	return w, nil
}

func (c *libraryClient) Close() error { return errors.Join(c.client.Close(), c.storeClient.Close()) }

type libraryWorker struct {
	client *dlock.Client
	name   string
	opts   []dlock.Option
	lease  *dlock.Lease
}

func (w *libraryWorker) Lock(ctx context.Context) (err error) {
	w.lease, err = w.client.Lock(ctx, w.name, w.opts...)
	return err
}

func (w *libraryWorker) Unlock(ctx context.Context) error { return w.lease.Unlock(ctx) }
