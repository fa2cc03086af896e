package memlock

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

type watching struct {
	req  driver.Request
	wake func()
}

// Watch implements driver.Watcher.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	w := &watching{req: req, wake: wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[req.Name] = append(s.watches[req.Name], w)
	return func() { s.unwatch(w) }, nil
}

func (s *Store) unwatch(w *watching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := w.req.Name
	all := s.watches[name]
	i := slices.Index(all, w)
	switch {
	case i < 0: // stop was called twice
	case len(all) == 1:
		delete(s.watches, name)
	default:
		s.watches[name] = slices.Delete(all, i, i+1)
	}
}

// wake tells those for whom trying again is worth it: of the fair waiters only
// the head, of the others all, since which of them still wants the lock is not
// known here.
func (s *Store) wake(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, queued := s.head(name, s.now())
	for _, w := range s.watches[name] {
		if !w.req.Fair || !queued || w.req.Owner == head.owner {
			w.wake()
		}
	}
}
