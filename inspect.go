package dlock

import (
	"context"
	"fmt"
	"iter"

	"github.com/dlock-go/dlock/driver"
)

// Locks yields the locks that are held and whose names start with prefix, in no
// particular order, whoever holds them. An error is the last thing it yields;
// it wraps [ErrUnsupported] where the store cannot list.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		lister, ok := c.store.(driver.Lister)
		if !ok {
			yield(driver.Info{}, c.unsupported("listing locks"))
			return
		}
		if err := c.calls.begin(); err != nil {
			yield(driver.Info{}, err)
			return
		}
		// What the caller does with it may take long, or be Close.
		for info, err := range lister.List(ctx, prefix) {
			c.calls.end()
			if !yield(info, err) {
				return
			}
			if err := c.calls.begin(); err != nil {
				yield(driver.Info{}, err)
				return
			}
		}
		c.calls.end()
	}
}

// Find describes the lock of that name, whoever holds it, and says whether it is
// held. The error wraps [ErrUnsupported] where the store cannot tell.
func (c *Client) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Info{}, false, err
	}
	finder, ok := c.store.(driver.Finder)
	if !ok {
		return c.findByList(ctx, name)
	}
	if err := c.calls.begin(); err != nil {
		return driver.Info{}, false, err
	}
	defer c.calls.end()
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	info, held, err := finder.Find(bounded, name)
	if err = c.explain(ctx, bounded, err); err != nil {
		return driver.Info{}, false, fmt.Errorf("looking for %q: %w", name, err)
	}
	return info, held, nil
}

func (c *Client) findByList(ctx context.Context, name string) (driver.Info, bool, error) {
	for info, err := range c.Locks(ctx, name) {
		if err != nil {
			return driver.Info{}, false, err
		}
		if info.Name == name {
			return info, true, nil
		}
	}
	return driver.Info{}, false, nil
}

// Break takes name from whoever holds it with that token, and from nobody else:
// the error wraps [ErrNotHeld] if the lock is free or was acquired again since
// the token was read. The holder finds out at its next renewal; until then two
// holders may believe in the lock, so that only a resource that checks tokens is
// safe. It wraps [ErrUnsupported] where the store cannot do it.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	breaker, ok := c.store.(driver.Breaker)
	if !ok {
		return c.unsupported("breaking locks")
	}
	if err := c.calls.begin(); err != nil {
		return err
	}
	defer c.calls.end()
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.explain(ctx, bounded, breaker.Break(bounded, name, token)); err != nil {
		return fmt.Errorf("breaking %q with token %d: %w", name, token, err)
	}
	return nil
}

// Diagnose examines how the store is configured, and says what weakens its
// promises. The error wraps [ErrUnsupported] where the store cannot do it.
func (c *Client) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	diagnoser, ok := c.store.(driver.Diagnoser)
	if !ok {
		return nil, c.unsupported("a diagnosis")
	}
	if err := c.calls.begin(); err != nil {
		return nil, err
	}
	defer c.calls.end()
	return diagnoser.Diagnose(ctx)
}

func (c *Client) unsupported(what string) error {
	return fmt.Errorf("%w: %s on %s", ErrUnsupported, what, c.traits.Store)
}
