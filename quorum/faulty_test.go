package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// dead is a member that refuses every connection.
type dead struct{ *memlock.Store }

func asDead(m *memlock.Store) driver.Store { return dead{m} }

var errRefused = fmt.Errorf("%w: %w", driver.ErrUnreachable, errors.New("connection refused"))

func (dead) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, errRefused
}

func (dead) Renew(_ context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = errRefused
	}
	return errs
}

func (dead) Release(context.Context, driver.Grant) error { return errRefused }
func (dead) RaiseToken(context.Context, driver.Grant, uint64) (driver.Grant, error) {
	return driver.Grant{}, errRefused
}
func (dead) Identify(context.Context) (string, error)           { return "", errRefused }
func (dead) Break(context.Context, string, uint64) error        { return errRefused }
func (dead) Diagnose(context.Context) ([]driver.Finding, error) { return nil, errRefused }
func (dead) Watch(context.Context, driver.Request, func()) (func(), error) {
	return nil, errRefused
}

func (dead) List(context.Context, string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, errRefused) }
}

// hung is a member that accepts calls and never answers.
type hung struct{ *memlock.Store }

func asHung(m *memlock.Store) driver.Store { return hung{m} }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (hung) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	return driver.Grant{}, hang(ctx)
}

func (hung) Renew(ctx context.Context, grants []driver.Grant) []error {
	err := hang(ctx)
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (hung) Release(ctx context.Context, _ driver.Grant) error { return hang(ctx) }
func (hung) RaiseToken(ctx context.Context, _ driver.Grant, _ uint64) (driver.Grant, error) {
	return driver.Grant{}, hang(ctx)
}
func (hung) Identify(ctx context.Context) (string, error)           { return "", hang(ctx) }
func (hung) Break(ctx context.Context, _ string, _ uint64) error    { return hang(ctx) }
func (hung) Diagnose(ctx context.Context) ([]driver.Finding, error) { return nil, hang(ctx) }
func (hung) Watch(ctx context.Context, _ driver.Request, _ func()) (func(), error) {
	return nil, hang(ctx)
}

func (hung) List(ctx context.Context, _ string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) { yield(driver.Info{}, hang(ctx)) }
}

// unidentified is a member that cannot tell its identity until it is back.
type unidentified struct {
	conn
	back chan struct{}
}

func (a *unidentified) Identify(ctx context.Context) (string, error) {
	select {
	case <-a.back:
		return a.conn.Identify(ctx)
	default:
		return "", errRefused
	}
}
