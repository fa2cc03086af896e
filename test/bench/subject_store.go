package main

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

func (o opened) close() error { return errors.Join(o.Close(), o.closeMore()) }

// direct is a subject that calls the store without the library. pause waits
// between two attempts.
func direct(name string, open opener, pause func(context.Context) error) subject {
	return onStore(name, open, func(o opened, counts *counted) client {
		return &directClient{storeClient{o, counts}, pause}
	})
}

// library is a subject that uses dlock as its users do.
func library(name string, open opener) subject {
	return onStore(name, open, func(o opened, counts *counted) client {
		return &libraryClient{storeClient{o, counts}, dlock.New(counts.store(), nil)}
	})
}

func onStore(name string, open opener, wrap func(opened, *counted) client) subject {
	return subject{name: name, open: func(dir string) (func(context.Context) (client, error), error) {
		connect, err := open(dir)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (client, error) {
			o, err := connect(ctx)
			if err != nil {
				return nil, err
			}
			return wrap(o, count(o.Store)), nil
		}, nil
	}}
}

type storeClient struct {
	opened opened
	counts *counted
}

func (c *storeClient) commands() (uint64, bool) { return c.counts.commands() }
func (c *storeClient) close() error             { return c.opened.close() }

type directClient struct {
	storeClient
	pause func(context.Context) error
}

func (c *directClient) worker(_ context.Context, name string) (worker, error) {
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

func (w *directWorker) lock(ctx context.Context) (err error) {
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

func (w *directWorker) unlock(ctx context.Context) error { return w.store.Release(ctx, w.grant) }

type libraryClient struct {
	storeClient
	client *dlock.Client
}

func (c *libraryClient) worker(_ context.Context, name string) (worker, error) {
	return &libraryWorker{client: c.client, name: name}, nil
}

func (c *libraryClient) close() error { return errors.Join(c.client.Close(), c.storeClient.close()) }

type libraryWorker struct {
	client *dlock.Client
	name   string
	lease  *dlock.Lease
}

func (w *libraryWorker) lock(ctx context.Context) (err error) {
	w.lease, err = w.client.Lock(ctx, w.name)
	return err
}

func (w *libraryWorker) unlock(ctx context.Context) error { return w.lease.Unlock(ctx) }
