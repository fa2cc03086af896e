package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/lab/subject"
)

// visitMargin is how much longer than its TTL a lock of a dead process may be held, on a busy
// machine.
const visitMargin = 15 * time.Second

// visit acquires every name in every way in which it is used, and releases it. It is made
// before (0) and after (1) the processes have locked, counts the entries of the store, and
// finds what they left behind.
func (s *soak) visit(ctx context.Context, when int) error {
	if s.store.entries == nil {
		return nil
	}
	var store driver.Store
	if err := retry(ctx, visitMargin, func() (err error) {
		store, err = subject.OpenStore(ctx, s.place.URL(s.place.Addrs))
		return err
	}); err != nil {
		return err
	}
	defer store.Close()
	client := dlock.New(store, nil)
	traits := store.Traits()
	limit := max(s.store.ttl, wakeTTL) + traits.Granularity + visitMargin - s.place.clock
	for name, d := range modes(traits, s.store.ttl) {
		if err := s.visitName(ctx, client, name, d, limit); errors.Is(err, dlock.ErrHeld) {
			s.result.Grown = append(s.result.Grown, fmt.Sprintf("the locks: %v, %v after the last process ended", err, limit))
		} else if err != nil {
			return errors.Join(err, client.Close())
		}
	}
	return errors.Join(client.Close(), s.countEntries(ctx, store, when, limit))
}

// visitName acquires everything that a name has: all permits, or the exclusive lock.
func (s *soak) visitName(ctx context.Context, client *dlock.Client, name string, d duty, limit time.Duration) error {
	opts := []dlock.Option{dlock.WithTTL(d.ttl), dlock.WithWait(limit)}
	if d.fair {
		opts = append(opts, dlock.WithFair())
	}
	if d.limit > 0 {
		opts = append(opts, dlock.WithLimit(d.limit))
	}
	var errs []error
	for range max(1, d.limit) {
		var lease *dlock.Lease
		if err := retry(ctx, limit, func() (err error) {
			lease, err = client.Lock(ctx, name, opts...)
			return err
		}); err != nil {
			errs = append(errs, err)
			break
		}
		defer func() { _ = lease.Unlock(context.Background()) }() // it expires
	}
	return errors.Join(errs...)
}

// retry repeats a call while a busy machine is too slow for the store, for limit at most.
func retry(ctx context.Context, limit time.Duration, call func() error) error {
	for end := time.Now().Add(limit); ; wait(ctx, settle) {
		if err := call(); !errors.Is(err, dlock.ErrUnreachable) || time.Now().After(end) {
			return err
		}
	}
}

// countEntries counts what the store keeps when no process locks. After the soak this must
// fall to what it was before, and no lock may be held.
func (s *soak) countEntries(ctx context.Context, store driver.Store, when int, limit time.Duration) error {
	if when == 0 {
		n, err := s.store.entries(ctx, s.place)
		s.result.Entries[0] = n
		return err
	}
	if s.place.swept {
		limit += rowLingers
	}
	for end := time.Now().Add(limit); ; wait(ctx, settle) {
		if s.place.swept {
			if err := s.place.sweep(ctx); err != nil {
				return fmt.Errorf("running the janitor: %w", err)
			}
		}
		n, err := s.store.entries(ctx, s.place)
		if err != nil {
			return fmt.Errorf("counting the entries of the store: %w", err)
		}
		held, err := heldLocks(ctx, store)
		if err != nil {
			return fmt.Errorf("listing the locks of the store: %w", err)
		}
		s.result.Entries[1] = n
		flat := n <= s.result.Entries[0] && len(held) == 0
		if !flat && time.Now().Before(end) {
			continue
		}
		if n > s.result.Entries[0] {
			s.result.Grown = append(s.result.Grown, fmt.Sprintf("the store: %d entries at first, %d at the end", s.result.Entries[0], n))
		}
		s.result.Grown = append(s.result.Grown, held...)
		return nil
	}
}

// heldLocks describes the locks that are held, if the store can list them.
func heldLocks(ctx context.Context, store driver.Store) (held []string, err error) {
	lister, ok := store.(driver.Lister)
	if !ok {
		return nil, nil
	}
	err = retry(ctx, visitMargin, func() error {
		held = nil
		for info, err := range lister.List(ctx, prefix) {
			if err != nil {
				return err
			}
			held = append(held, fmt.Sprintf("the locks: %q is held with token %d by no process", info.Name, info.Token))
		}
		return nil
	})
	return held, err
}
