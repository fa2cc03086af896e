package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// List implements driver.Lister: it yields the locks that a majority of the members
// has with the same token and holder. It reads all lists before it yields anything.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		locks, err := s.heldByMajority(ctx, func(ctx context.Context, m *member) ([]driver.Info, error) { return m.list(ctx, prefix) })
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, info := range locks {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	locks, err := s.heldByMajority(ctx, func(ctx context.Context, m *member) ([]driver.Info, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, slowFactor*s.timeout, errUnanswered)
		defer cancel()
		info, held, err := m.store.Find(ctx, name)
		if err != nil || !held {
			return nil, orUnanswered(ctx, err)
		}
		return []driver.Info{info}, nil
	})
	if err != nil || len(locks) == 0 {
		return driver.Info{}, false, err
	}
	return locks[0], true, nil
}

// orUnanswered returns errUnanswered if that ended ctx and caused err.
func orUnanswered(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errUnanswered) {
		return errUnanswered
	}
	return err
}

// heldByMajority asks every member for locks, and returns those that a majority has.
func (s *Store) heldByMajority(ctx context.Context, ask func(context.Context, *member) ([]driver.Info, error)) (held []driver.Info, err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.work.Done()
	lists, _, err := gather(ctx, s, ask)
	if err != nil {
		return nil, fmt.Errorf("finding locks: %w", err)
	}
	type key struct {
		name   string
		token  uint64
		holder driver.Holder
	}
	found := make(map[key][]driver.Info)
	for _, infos := range lists {
		for _, info := range infos {
			k := key{info.Name, info.Token, info.Holder}
			found[k] = append(found[k], info)
		}
	}
	for _, infos := range found {
		if len(infos) >= s.majority {
			held = append(held, s.merge(infos))
		}
	}
	return held, nil
}

// merge makes one Info of those of several members. The lock is held for as long as a
// majority holds it.
func (s *Store) merge(infos []driver.Info) driver.Info {
	slices.SortFunc(infos, func(a, b driver.Info) int { return cmp.Compare(b.Remaining, a.Remaining) })
	merged := infos[s.majority-1]
	for _, info := range infos {
		merged.Waiters = max(merged.Waiters, info.Waiters)
	}
	return merged
}

// list reads the locks of one member. It may take long, but without progress the member must
// answer other calls: a server may search for long before it finds a lock.
func (m *member) list(ctx context.Context, prefix string) (infos []driver.Info, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var progress atomic.Bool
	var supervision sync.WaitGroup
	supervision.Go(func() {
		for limit := slowFactor * m.s.timeout; backoff.Sleep(ctx, limit) == nil; {
			if !progress.Swap(false) && !m.isResponsive(ctx, limit) {
				cancel(errUnanswered)
			}
		}
	})
	defer supervision.Wait()
	defer cancel(nil)
	for info, err := range m.store.List(ctx, prefix) {
		if err != nil {
			return nil, orUnanswered(ctx, err)
		}
		progress.Store(true)
		infos = append(infos, info)
	}
	return infos, nil
}

// isResponsive reports whether the member answers a call that is little work.
func (m *member) isResponsive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := m.store.Identify(ctx)
	return ctx.Err() == nil && !errors.Is(err, driver.ErrUnreachable)
}

// Break implements driver.Breaker: it breaks the lock on every member that has that token.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.work.Done()
	return s.callAll(ctx, func(m *member) error {
		return m.call(ctx, func(ctx context.Context) error { return m.store.Break(ctx, name, token) })
	})
}
