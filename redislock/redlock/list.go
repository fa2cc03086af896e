package redlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// List implements driver.Lister: it yields the locks that a majority of the members
// has with the same token and holder. It reads all lists before it yields anything.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		locks, err := s.heldByMajority(ctx, func(ctx context.Context, m *member) (infos []driver.Info, err error) {
			for info, err := range m.store.List(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				infos = append(infos, info)
			}
			return infos, nil
		})
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
		ctx, cancel := context.WithTimeout(ctx, slowFactor*s.timeout)
		defer cancel()
		info, held, err := m.store.Find(ctx, name)
		if err != nil || !held {
			return nil, err
		}
		return []driver.Info{info}, nil
	})
	if err != nil || len(locks) == 0 {
		return driver.Info{}, false, err
	}
	return locks[0], true, nil
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
