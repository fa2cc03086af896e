package drivertest_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes that show when a request is carried out late.

// forgetsAttempts does nothing about an Acquire that comes after its Release.
type forgetsAttempts struct{ *memlock.Store }

// delayed is a store behind a network that can be slow.
type delayed struct {
	driver.Store
	log *attempts.Log // nil if late attempts are forgotten

	mu   sync.Mutex
	held chan struct{} // closed to deliver what is held; nil if nothing is
	late sync.WaitGroup
}

func newDelayed(store driver.Store) *delayed {
	d := &delayed{Store: store}
	if _, forgets := store.(forgetsAttempts); !forgets {
		d.log = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
			return store.Release(ctx, driver.Grant{Name: name, Owner: owner})
		})
	}
	return d
}

func (d *delayed) hold() (deliver func()) {
	held := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
	return func() {
		d.mu.Lock()
		d.held = nil
		d.mu.Unlock()
		close(held)
		d.late.Wait()
	}
}

func (d *delayed) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if held == nil {
		return d.Store.Acquire(ctx, req)
	}
	ended := func(bool) {}
	if d.log != nil {
		ended = d.log.Leave(req.Name, req.Owner)
	}
	d.late.Go(func() {
		<-held
		_, _ = d.Store.Acquire(context.WithoutCancel(ctx), req)
		ended(true)
	})
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrUnreachable, ctx.Err())
}

func (d *delayed) Release(ctx context.Context, grant driver.Grant) error {
	if d.log != nil {
		released, err := d.log.Settle(ctx, grant)
		if err != nil {
			return err
		}
		defer released()
	}
	return d.Store.Release(ctx, grant)
}

func (d *delayed) Close() error {
	if d.log != nil {
		return d.log.Close()
	}
	return nil
}
