package drivertest_test

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Mistakes in what members of a quorum need, one a store.

type ignoresFloor struct{ *memlock.Store }

func (s ignoresFloor) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Floor = 0
	return s.Store.Acquire(ctx, req)
}

// forgetsRaise changes the grant and not the lock.
type forgetsRaise struct {
	*memlock.Store
	raised *shelf[uint64]
}

func (s forgetsRaise) RaiseToken(_ context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	token = max(token, s.raised.get(grant.Name))
	s.raised.put(grant.Name, token)
	grant.Token = token
	return grant, nil
}

type setsToken struct{ *memlock.Store }

func (s setsToken) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	grant, err := s.Store.RaiseToken(ctx, grant, token)
	grant.Token = token
	return grant, err
}

type neverLowers struct{ *memlock.Store }

func (s neverLowers) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	grant.Token = 0
	return s.Store.RaiseToken(ctx, grant, token)
}

// lowersCounter grants the token after a lowered one.
type lowersCounter struct {
	*memlock.Store
	lowered *shelf[uint64]
}

func (s lowersCounter) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if token < grant.Token {
		s.lowered.put(grant.Name, token)
	}
	return s.Store.RaiseToken(ctx, grant, token)
}

func (s lowersCounter) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if lowered := s.lowered.get(req.Name); err == nil && lowered != 0 {
		grant.Token = lowered + 1
	}
	return grant, err
}

// raisesFirst sets aside one token at the new place of a grant's tokens.
type raisesFirst struct {
	*memlock.Store
	raised *shelf[uint64]
}

func (s raisesFirst) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	raised, err := s.Store.RaiseToken(ctx, grant, token)
	s.raised.put(grant.Name, raised.Token)
	return raised, err
}

func (s raisesFirst) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.Store.Acquire(ctx, req)
	if raised := s.raised.get(req.Name); err == nil && raised != 0 {
		grant.Token = raised + 1
	}
	return grant, err
}

type raisesAnyone struct{ *memlock.Store }

func (s raisesAnyone) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	_, err := s.Acquire(ctx, driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL})
	if err != nil {
		return driver.Grant{}, driver.ErrNotHeld
	}
	return s.Store.RaiseToken(ctx, grant, token)
}

type raiseRenews struct{ *memlock.Store }

func (s raiseRenews) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if errs := s.Renew(ctx, []driver.Grant{grant}); errs != nil {
		return driver.Grant{}, errs[0]
	}
	return s.Store.RaiseToken(ctx, grant, token)
}

type identifiesCall struct{ *memlock.Store }

func (s identifiesCall) Identify(context.Context) (string, error) {
	return driver.NewOwner().Hex(), nil
}

// splitVotes may refuse all contenders, and nothing else is wrong with it.
type splitVotes struct{ selectThenInsert }

func (s splitVotes) Traits() driver.Traits {
	traits := s.selectThenInsert.Traits()
	traits.SplitVotes = true
	return traits
}
