package dlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
)

// Locks yields the held locks whose names start with prefix, of all holders, in no
// particular order. An error is the last element. It wraps [ErrUnsupported] if the
// store cannot list.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		lister, ok := c.store.(driver.Lister)
		if !ok {
			yield(driver.Info{}, c.unsupported("a list of locks"))
			return
		}
		if err := c.calls.begin(); err != nil {
			yield(driver.Info{}, err)
			return
		}
		inTime := ctx.Err() == nil
		for info, err := range lister.List(ctx, prefix) {
			c.calls.end() // the caller may take long, or call Close
			if !yield(info, c.markUnreachable(ctx, inTime, err)) {
				return
			}
			if err := c.calls.begin(); err != nil {
				yield(driver.Info{}, err)
				return
			}
			inTime = ctx.Err() == nil
		}
		c.calls.end()
	}
}

// Find describes the lock of name, of any holder, and reports whether it is held. The
// error wraps [ErrUnsupported] if the store can neither find nor list.
func (c *Client) Find(ctx context.Context, name string) (info driver.Info, held bool, err error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Info{}, false, err
	}
	find := c.findInList
	if finder, ok := c.store.(driver.Finder); ok {
		find = finder.Find
	}
	err = c.callStore(ctx, func(ctx context.Context) (err error) {
		info, held, err = find(ctx, name)
		return err
	})
	if err != nil {
		return driver.Info{}, false, fmt.Errorf("finding %q: %w", name, err)
	}
	return info, held, nil
}

// findInList is Find for a store that can only list.
func (c *Client) findInList(ctx context.Context, name string) (driver.Info, bool, error) {
	lister, ok := c.store.(driver.Lister)
	if !ok {
		return driver.Info{}, false, c.unsupported("a list of locks")
	}
	for info, err := range lister.List(ctx, name) {
		if err != nil || info.Name == name {
			return info, err == nil, err
		}
	}
	return driver.Info{}, false, nil
}

// Break revokes the lock of name if this token belongs to its holder: the one that Locks and
// Find show, or that of a lease. The error wraps [ErrNotHeld] if the lock is free or was acquired again
// since the token was read, and [ErrUnsupported] if the store cannot break locks. Leases that callers
// of one client share or hand over to each other are one lock in the store, with a step of tokens
// ([driver.Traits].TokenStep), and end together. The holder finds out at its next renewal, or
// when its TTL ends if it is cut off from the store or does not renew. Until then two holders may trust the lock, and only a resource that checks tokens is safe.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	breaker, ok := c.store.(driver.Breaker)
	if !ok {
		return c.unsupported("to break locks")
	}
	err := c.callStore(ctx, func(ctx context.Context) error { return breaker.Break(ctx, name, token) })
	if err != nil {
		return fmt.Errorf("breaking %q with token %d: %w", name, token, err)
	}
	return nil
}

// callStore makes one call to the store, limited in time. If the context ended it, the error wraps the
// context's cause.
func (c *Client) callStore(ctx context.Context, call func(context.Context) error) error {
	if err := c.calls.begin(); err != nil {
		return err
	}
	defer c.calls.end()
	inTime := ctx.Err() == nil
	limited, timer := c.withTimeout(ctx, c.requestTimeout)
	defer timer.End()
	err := c.explain(ctx, limited, call(limited))
	if cause := context.Cause(ctx); cause != nil && err != nil && !isAnswer(limited, err) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return c.markUnreachable(ctx, inTime, err)
}

// markUnreachable adds ErrUnreachable to the error of a call whose deadline passed while the
// store did not answer. inTime says that the deadline had not passed before the call.
func (c *Client) markUnreachable(ctx context.Context, inTime bool, err error) error {
	if err == nil || !inTime || errors.Is(err, ErrUnreachable) || ctx.Err() == context.Canceled {
		return err
	}
	cause := deadline.Passed(ctx)
	if cause == nil || !errors.Is(err, cause) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("%w: no answer from %s: %w", ErrUnreachable, c.traits.Store, err)
}

// Diagnose examines the configuration of the store, and returns what weakens its
// promises. The error wraps [ErrUnsupported] if the store cannot examine itself.
func (c *Client) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	diagnoser, ok := c.store.(driver.Diagnoser)
	if !ok {
		return nil, c.unsupported("a diagnosis")
	}
	if err := c.calls.begin(); err != nil {
		return nil, err
	}
	defer c.calls.end()
	inTime := ctx.Err() == nil
	findings, err := diagnoser.Diagnose(ctx)
	return findings, c.markUnreachable(ctx, inTime, err)
}

func (c *Client) unsupported(what string) error {
	return fmt.Errorf("%w: %s does not offer %s", ErrUnsupported, c.traits.Store, what)
}
