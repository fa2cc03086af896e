package drivertest_test

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes with locks that are passed on, one a store.

// copiesLock: both have it.
type copiesLock struct{ *memlock.Store }

func (s copiesLock) Pass(_ context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	grant.Owner = req.Owner
	return grant, nil
}

// keepsToken writes another owner over the old one, and nothing else.
type keepsToken struct{ *memlock.Store }

func (s keepsToken) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	next, err := s.Store.Pass(ctx, grant, req)
	next.Token = grant.Token
	return next, err
}

// keepsOldTTL leaves the expiry as it was.
type keepsOldTTL struct{ *memlock.Store }

func (s keepsOldTTL) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	req.TTL = grant.TTL
	return s.Store.Pass(ctx, grant, req)
}

// passesAnyones goes by the name alone.
type passesAnyones struct{ *memlock.Store }

func (s passesAnyones) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	for info := range s.List(ctx, grant.Name) {
		if info.Name == grant.Name {
			_ = s.Break(ctx, info.Name, info.Token)
		}
	}
	return s.Store.Acquire(ctx, req)
}
