package memlock

import (
	"context"
	"iter"
	"strings"
	"time"

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
	for name := range s.locks {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		waiters := s.countWaiters(name)
		l := s.use(name, now)
		for _, sh := range l.Shares {
			infos = append(infos, driver.Info{Name: name, Mode: l.Mode, Token: uint64(sh.Token), Holder: sh.Holder,
				Since: s.start.Add(time.Duration(sh.Since)).Round(0), Remaining: time.Duration(sh.Expires - now), Waiters: waiters})
		}
	}
	return infos
}

// countWaiters counts waiters by their places, and those without a place by their subscriptions.
func (s *Store) countWaiters(name string) int {
	queue := s.queue(name, s.now())
	n := len(queue)
	for _, sub := range s.waiters.Of(name) {
		if indexOf(queue, sub.req.Owner) < 0 {
			n++
		}
	}
	return n
}
