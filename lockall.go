package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// LockAll acquires all names or none. It cannot deadlock with another LockAll,
// whatever the order in which each was given its names; a name that is given
// twice counts once. Where the store can, all names are granted in one atomic
// step and nothing is held while waiting; otherwise they are acquired one after
// the other in the order of their bytes, and given back if one cannot be had.
// With WithFair it is always the latter. WithWait limits the waiting for all
// names together. Nothing is reserved for those who wait for all at once: names
// that are always in use by others may keep them waiting for long.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Leases, error) {
	s := c.settings(opts)
	if err := c.life.begin(); err != nil {
		return nil, err
	}
	defer c.life.end()
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: LockAll needs at least one", ErrBadName)
	}
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
	}
	if err := c.check(&s); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not locking %d names: %w", len(names), context.Cause(ctx))
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return c.lockAll(ctx, slices.Compact(names), &s)
}

func (c *Client) lockAll(ctx context.Context, names []string, s *settings) (*Leases, error) {
	outer := c.innermost(ctx)
	set := &Leases{caller: ctx}
	var fresh []*hold // the names that are not re-entered
	inner := outer
	for _, name := range names {
		if h := outer.find(name); h != nil {
			lease, err := h.reenter(ctx)
			if err != nil {
				return nil, errors.Join(err, set.undo())
			}
			set.leases = append(set.leases, lease)
			continue
		}
		inner = c.newHold(ctx, name, s, inner)
		fresh = append(fresh, inner)
	}
	returned := false
	defer func() {
		if !returned { // a hook panicked
			unlockBegun(fresh)
			_ = set.undo()
		}
	}()
	err := c.acquireAll(ctx, fresh, s)
	returned = true
	if err != nil {
		_ = set.undo() // re-entries only count down
		return nil, err
	}
	for _, h := range fresh {
		set.leases = append(set.leases, &h.first)
		set.innermost = h
	}
	slices.SortFunc(set.leases, byName)
	return set, nil
}

// acquireAll acquires the holds, which are in the order of their names.
func (c *Client) acquireAll(ctx context.Context, holds []*hold, s *settings) error {
	if s.limited && s.waits() { // for all together
		limited, cancel := context.WithTimeoutCause(ctx, s.wait, errWaitLimit)
		defer cancel()
		ctx = limited
		for _, h := range holds {
			h.settings.limited = false
		}
	}
	if c.batcher != nil && !s.fair && len(holds) > 1 {
		err := c.acquireBatch(ctx, holds)
		if !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	return c.acquireInOrder(ctx, holds)
}

// acquireInOrder acquires one name after the other. Since everybody takes them
// in the same order, nobody waits in a circle.
func (c *Client) acquireInOrder(ctx context.Context, holds []*hold) error {
	for i, h := range holds {
		if err := h.acquire(ctx); err != nil {
			giveAll(holds[:i])
			return err
		}
	}
	for _, h := range holds { // the first may be lost by the time the last is had
		if err := h.over(); err != nil {
			giveAll(holds)
			return fmt.Errorf("%q was lost while waiting for others: %w", h.name, err)
		}
	}
	return nil
}

// giveAll gives back what was acquired of a set that cannot be had whole.
func giveAll(holds []*hold) {
	var wg sync.WaitGroup
	for _, h := range holds {
		wg.Go(func() { _ = h.first.Unlock(context.Background()) }) // the reason to give up is told
	}
	wg.Wait()
}

// acquireBatch acquires all holds in one step of the store.
func (c *Client) acquireBatch(ctx context.Context, holds []*hold) error {
	w := wait{client: c, ctx: ctx, hold: holds[0]}
	defer w.stop()
	for {
		if err := w.enterAll(holds); err != nil {
			leaveAll(holds, nil)
			return w.ended(err)
		}
		err := c.attemptAll(w.ctx, holds)
		if err == nil {
			for _, h := range holds {
				w.hold = h
				_ = w.ended(nil)
			}
			return nil
		}
		if errors.Is(err, ErrUnsupported) {
			leaveAll(holds, nil)
			return err
		}
		if held, ok := errors.AsType[*driver.HeldError](err); ok {
			w.hold = named(holds, held.Name)
			leaveAll(holds, w.hold)
		}
		if giveUp := w.after(err); giveUp != nil {
			for _, h := range holds {
				h.abandon(err)
			}
			return w.ended(giveUp)
		}
	}
}

// enterAll passes the slots of all holds. While it waits for one it is inside of
// no other, so that nobody waits for a name that is not held.
func (w *wait) enterAll(holds []*hold) error {
	for {
		closed, inside := tryEnterAll(holds)
		if closed == nil {
			return nil
		}
		leaveAll(holds, nil)
		w.hold = closed
		if err := w.queue(inside); err != nil {
			return err
		}
	}
}

// tryEnterAll passes all slots that it is not inside of already, up to the first
// that is closed.
func tryEnterAll(holds []*hold) (closed, inside *hold) {
	for _, h := range holds {
		if h.slot.Load() != nil {
			continue
		}
		slot, inside := h.client.queue.TryEnter(h.name, h)
		if slot == nil {
			return h, inside
		}
		h.foundOpen(slot)
	}
	return nil, nil
}

// leaveAll leaves the slots of all holds but one.
func leaveAll(holds []*hold, but *hold) {
	for _, h := range holds {
		if h != but {
			h.leave()
		}
	}
}

// named finds a hold by its name, or takes the first.
func named(holds []*hold, name string) *hold {
	for _, h := range holds {
		if h.name == name {
			return h
		}
	}
	return holds[0]
}

// attemptAll asks the store once for all holds, and begins them.
func (c *Client) attemptAll(ctx context.Context, holds []*hold) error {
	if c.life.ended.Load() {
		return ErrClosed
	}
	reqs := make([]driver.Request, len(holds))
	for i, h := range holds {
		reqs[i] = h.attemptRequest()
	}
	sent, grants, err := c.callAll(ctx, reqs)
	if err != nil {
		for _, h := range holds {
			h.noteOutcome(err)
		}
		return err
	}
	for i, h := range holds {
		err = errors.Join(err, h.granted(grants[i], sent))
	}
	if err != nil {
		return err
	}
	for i, h := range holds {
		if err := h.begin(sent); err != nil {
			giveAll(holds[:i])
			return err
		}
	}
	return nil
}

func (c *Client) callAll(ctx context.Context, reqs []driver.Request) (clock.Instant, []driver.Grant, error) {
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	sent := c.clock.NoLaterThanNow()
	grants, err := c.batcher.AcquireAll(bounded, reqs)
	return sent, grants, c.explain(ctx, bounded, err)
}

func byName(a, b *Lease) int {
	switch {
	case a.Name() < b.Name():
		return -1
	case a.Name() > b.Name():
		return 1
	}
	return 0
}
