package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
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

// Find implements driver.Finder, for members that are no Finders by their lists.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	locks, err := s.heldByMajority(ctx, func(ctx context.Context, m *member) ([]driver.Info, error) { return m.look(ctx, name) })
	if err != nil || len(locks) == 0 {
		return driver.Info{}, false, err
	}
	return locks[0], true, nil
}

// look returns the lock of that name, if the member holds it.
func (m *member) look(ctx context.Context, name string) ([]driver.Info, error) {
	finder, ok := m.store.(driver.Finder)
	if !ok {
		infos, err := m.list(ctx, name)
		return slices.DeleteFunc(infos, func(info driver.Info) bool { return info.Name != name }), err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience*m.timeout, errUnanswered)
	defer cancel()
	info, held, err := finder.Find(ctx, name)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errUnanswered):
		return nil, errUnanswered
	case err != nil || !held:
		return nil, err
	}
	return []driver.Info{info}, nil
}

// lock is what tells a lock from others of the same name.
type lock struct {
	name   string
	token  uint64
	holder driver.Holder
}

// heldByMajority asks every member for locks, and returns those that a majority has.
func (s *Store) heldByMajority(ctx context.Context, ask func(context.Context, *member) ([]driver.Info, error)) ([]driver.Info, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	lists, _, err := survey(ctx, s, ask)
	if err != nil {
		return nil, fmt.Errorf("listing locks: %w", err)
	}
	found := make(map[lock][]driver.Info)
	for _, infos := range lists {
		s.sort(found, infos)
	}
	var held []driver.Info
	for _, infos := range found {
		if len(infos) >= s.rules.majority {
			held = append(held, s.merge(infos))
		}
	}
	return held, nil
}

// sort puts a list to what other members listed of the same locks.
func (s *Store) sort(found map[lock][]driver.Info, infos []driver.Info) {
	for _, info := range infos {
		l := lock{info.Name, info.Token, info.Holder}
		if !s.raises {
			l.token = 0
		}
		found[l] = append(found[l], info)
	}
}

// merge makes one Info of what several members say of a lock: it is held for as
// long as a majority holds it.
func (s *Store) merge(infos []driver.Info) driver.Info {
	slices.SortFunc(infos, func(a, b driver.Info) int { return cmp.Compare(b.Remaining, a.Remaining) })
	merged := infos[s.rules.majority-1]
	for _, info := range infos {
		merged.Token = max(merged.Token, info.Token)
		merged.Waiters = max(merged.Waiters, info.Waiters)
	}
	return merged
}

// list reads what one member holds. It may take long, but not stand still.
func (m *member) list(ctx context.Context, prefix string) (infos []driver.Info, err error) {
	lister, ok := m.store.(driver.Lister)
	if !ok {
		return nil, fmt.Errorf("%w: it cannot list locks", driver.ErrUnsupported)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	heard := make(chan struct{}, 1)
	var attending sync.WaitGroup
	attending.Go(func() { m.attend(ctx, heard, func() { cancel(errUnanswered) }) })
	defer attending.Wait()
	defer cancel(nil)
	for info, err := range lister.List(ctx, prefix) {
		select {
		case heard <- struct{}{}:
		default:
		}
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errUnanswered) {
				err = cause
			}
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// attend calls off when nothing was heard for a while and the member does not
// answer either. Silence alone means little: a server may have a lot to look
// through before it finds a lock.
func (m *member) attend(ctx context.Context, heard <-chan struct{}, off func()) {
	limit := patience * m.timeout
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heard:
		case <-timer.C:
			if !m.answers(ctx, limit) {
				off()
				return
			}
		}
		timer.Reset(limit)
	}
}

// answers asks the member for something that is no work. One that cannot be asked
// counts as silent.
func (m *member) answers(ctx context.Context, limit time.Duration) bool {
	if m.identifier == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := m.identifier.Identify(ctx)
	return ctx.Err() == nil && !errors.Is(err, driver.ErrUnreachable)
}

// Break implements driver.Breaker: it breaks the lock on every member that has it
// with that token. The token is the same on a majority of them.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	if !s.raises {
		return fmt.Errorf("%w: breaking locks of members that do not agree on tokens", driver.ErrUnsupported)
	}
	return s.everywhere(ctx, func(m *member) error {
		breaker, ok := m.store.(driver.Breaker)
		if !ok {
			return fmt.Errorf("%w: it cannot break locks", driver.ErrUnsupported)
		}
		return m.call(ctx, func(ctx context.Context) error { return breaker.Break(ctx, name, token) })
	})
}

// everywhere calls f for each member, at the same time and in the background. The
// outcome is what a majority says: nil or ErrNotHeld.
func (s *Store) everywhere(ctx context.Context, f func(m *member) error) error {
	v := s.newReturns()
	for i, m := range s.members {
		s.work.Go(func() { v.report(i, f(m)) })
	}
	return v.wait(ctx, 2*s.timeout)
}
