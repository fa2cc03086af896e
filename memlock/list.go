package memlock

import (
	"context"
	"iter"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if ctx.Err() != nil {
			yield(driver.Info{}, context.Cause(ctx))
			return
		}
		for _, info := range s.held(prefix) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s *Store) held(prefix string) []driver.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var infos []driver.Info
	for name, l := range s.locks {
		if !l.held(now) || !strings.HasPrefix(name, prefix) {
			continue
		}
		infos = append(infos, driver.Info{Name: name, Token: l.token, Holder: l.holder,
			Since: s.start.Add(l.since).Round(0), Remaining: l.expires - now, Waiters: s.countWaiters(name)})
	}
	return infos
}

// countWaiters counts the fair waiters by their places and the others by their subscriptions.
func (s *Store) countWaiters(name string) int {
	n := len(s.queues[name])
	for _, sub := range s.waiters.Of(name) {
		if !sub.req.Fair {
			n++
		}
	}
	return n
}
