package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/ending"
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
	var bids []bid // of the names that are not re-entered
	for _, name := range names {
		if t := outer.find(name); t != nil {
			lease, err := t.reenter(ctx, s.mode)
			if err != nil {
				return nil, errors.Join(err, set.Unlock(context.Background()))
			}
			set.leases = append(set.leases, lease)
			continue
		}
		bids = append(bids, bid{})
		initBid(&bids[len(bids)-1], ctx, c, s, name, outer)
	}
	panics := true
	defer func() {
		if panics { // in a hook
			unlockAll(bids)
			_ = set.Unlock(context.Background())
		}
	}()
	var err error
	var waited time.Duration
	inOrder := !c.takesAll(s) || len(bids) <= 1
	if !inOrder {
		inOrder, waited, err = acquireBatch(bids)
	}
	if inOrder {
		err = c.acquireInOrder(ctx, bids, waited)
	}
	panics = false
	if err != nil {
		_ = set.Unlock(context.Background()) // the re-entries
		return nil, err
	}
	for i := range bids {
		set.innermost = bids[i].tenure
		set.leases = append(set.leases, &set.innermost.first)
	}
	slices.SortFunc(set.leases, func(a, b *Lease) int { return strings.Compare(a.Name(), b.Name()) })
	return set, nil
}

// acquireInOrder acquires one name after the other. All callers use the same order, so
// that they cannot deadlock. before is how long the call has waited so far. If a name is lost while
// the call waits for a later one, the call fails at once.
func (c *Client) acquireInOrder(ctx context.Context, bids []bid, before time.Duration) error {
	waiting, giveUp := context.WithCancelCause(ctx)
	losses := ending.New(giveUp)
	defer giveUp(nil)
	for i := range bids {
		b := &bids[i]
		s := b.claim.settings
		if s.wait > 0 {
			rest := *s
			rest.wait = max(0, s.wait-before)
			s = &rest
		}
		if i > 0 {
			b.outer = bids[i-1].tenure
		}
		b.inBatch = false
		b.call = call{client: c, settings: s, ctx: waiting}
		if err := b.acquire(); err != nil {
			err = cmp.Or(lossAmong(bids[:i]), err)
			unlockAll(bids[:i])
			return err
		}
		if i < len(bids)-1 {
			_, end := b.tenure.context()
			defer end.Follow(losses)()
		}
		before += b.call.timeWaited()
	}
	if err := lossAmong(bids); err != nil {
		unlockAll(bids)
		return err
	}
	return nil
}

// lossAmong returns why one of the tenures has ended, or nil.
func lossAmong(bids []bid) error {
	for i := range bids {
		if err := bids[i].tenure.endCause(); err != nil {
			return fmt.Errorf("%q ended before the call returned: %w", bids[i].claim.name, err)
		}
	}
	return nil
}

// Leases are the leases of one [Client.LockAll]. They are safe for concurrent use.
type Leases struct {
	leases    []*Lease        // in the order of their names
	innermost *tenure         // that LockAll acquired; nil if it re-entered all
	callerCtx context.Context // of LockAll

	once sync.Once
	ctx  *checkedContext
}

// Names returns the names that are held, sorted.
func (l *Leases) Names() []string {
	names := make([]string, len(l.leases))
	for i, lease := range l.leases {
		names[i] = lease.Name()
	}
	return names
}

// Token returns the fencing token of name, or zero if it is not among the names.
func (l *Leases) Token(name string) uint64 {
	for _, lease := range l.leases {
		if lease.Name() == name {
			return lease.Token()
		}
	}
	return 0
}

// Remaining returns the time until the context is done if no further renewal
// succeeds: the shortest [Lease.Remaining].
func (l *Leases) Remaining() time.Duration {
	least := l.leases[0].Remaining()
	for _, lease := range l.leases[1:] {
		least = min(least, lease.Remaining())
	}
	return least
}

// Unlock gives all locks back, as [Lease.Unlock] does each.
func (l *Leases) Unlock(ctx context.Context) error {
	errs := make([]error, len(l.leases))
	var wg sync.WaitGroup
	for i, lease := range l.leases {
		wg.Go(func() { errs[i] = lease.Unlock(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Context returns a context that is done as soon as the context of any lease is, see
// [Lease.Context]. Locking any of the names with it re-enters.
func (l *Leases) Context() context.Context {
	l.once.Do(func() {
		base := context.WithoutCancel(l.callerCtx)
		if l.innermost != nil {
			base, _ = l.innermost.context()
		}
		l.ctx = newCheckedContext(base, l.leases...)
	})
	return l.ctx
}
