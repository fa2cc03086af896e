package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// LockAll acquires all names or none. It cannot deadlock with another LockAll,
// whatever the order of the names that each was given. A name that is given twice
// counts once. If the store can, it grants all names in one atomic step, and LockAll
// holds and reserves nothing while it waits: if others always hold one of its names, it
// may wait for long. Such a store serves no other call meanwhile, so LockAll refuses more
// than 500 names there. Otherwise, with WithFair, and while fair callers wait for one of the
// names, LockAll acquires the names one after the other in the order of their bytes, and gives
// them back if it cannot acquire one.
// WithWait limits the waiting for all names together.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Leases, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: LockAll needs at least one name", ErrBadName)
	}
	s := c.settings(opts)
	if err := c.beginCall(ctx, s, names...); err != nil {
		return nil, err
	}
	defer c.calls.end()
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	if c.takesAll(s) && len(names) > maxNamesInOneStep {
		return nil, fmt.Errorf("%w: LockAll of %d names in one step (want %d at most)", ErrBadName, len(names), maxNamesInOneStep)
	}
	return c.lockAll(ctx, names, s)
}

// maxNamesInOneStep keeps a step short: Redis takes about 6 ms for it.
const maxNamesInOneStep = 500

// takesAll reports whether the store takes all names of a LockAll in one step, if it can.
func (c *Client) takesAll(s *settings) bool { return c.batcher != nil && !s.fair }

func (c *Client) lockAll(ctx context.Context, names []string, s *settings) (*Leases, error) {
	outer := c.innermost(ctx)
	set := &Leases{callerCtx: ctx}
	var holds []*hold // of the names that are not re-entered
	inner := outer
	for _, name := range names {
		if h := outer.find(name); h != nil {
			lease, err := h.reenter(ctx, s.mode)
			if err != nil {
				return nil, errors.Join(err, set.Unlock(context.Background()))
			}
			set.leases = append(set.leases, lease)
			continue
		}
		inner = c.newHold(ctx, name, s, inner)
		holds = append(holds, inner)
	}
	panics := true
	defer func() {
		if panics { // in a hook
			unlockAcquired(holds...)
			_ = set.Unlock(context.Background())
		}
	}()
	var err error
	if c.takesAll(s) && len(holds) > 1 {
		err = c.acquireBatch(ctx, holds)
	} else {
		err = c.acquireInOrder(ctx, holds, 0)
	}
	panics = false
	if err != nil {
		_ = set.Unlock(context.Background()) // the re-entries
		return nil, err
	}
	for _, h := range holds {
		set.leases = append(set.leases, &h.firstLease)
		set.innermost = h
	}
	slices.SortFunc(set.leases, func(a, b *Lease) int { return strings.Compare(a.Name(), b.Name()) })
	return set, nil
}

// acquireInOrder acquires one name after the other. All callers use the same order, so
// that they cannot deadlock. before is how long the call has waited so far. If a name is lost while
// the call waits for a later one, the call fails at once.
func (c *Client) acquireInOrder(ctx context.Context, holds []*hold, before time.Duration) error {
	waiting, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	for i, h := range holds {
		s := h.settings
		if s.wait > 0 {
			rest := *s
			rest.wait = max(0, s.wait-before)
			s = &rest
		}
		lc := lockCall{client: c, settings: s, ctx: waiting}
		if err := lc.acquire(h); err != nil {
			err = cmp.Or(lossAmong(holds[:i]), err)
			unlockAcquired(holds[:i]...)
			return err
		}
		if i < len(holds)-1 {
			defer context.AfterFunc(h.context(), func() { giveUp(lossAmong(holds[i : i+1])) })()
		}
		before += lc.timeWaited()
	}
	if err := lossAmong(holds); err != nil {
		unlockAcquired(holds...)
		return err
	}
	return nil
}

// lossAmong returns why one of the holds has ended, or nil.
func lossAmong(holds []*hold) error {
	for _, h := range holds {
		if err := h.endCause(); err != nil {
			return fmt.Errorf("%q ended before the call returned: %w", h.name, err)
		}
	}
	return nil
}
