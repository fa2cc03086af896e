package sqllock

import (
	"context"
	"sync"
	"time"
)

// A fair waiter is seen by its place. The others are told to the database when
// they have waited for a while, so that short waits write nothing.
const (
	presenceAfter   = 250 * time.Millisecond
	presenceTTL     = 30 * time.Second
	presenceRefresh = 10 * time.Second
)

// startPresence publishes who waits until stop is called, which withdraws what
// is left. It runs beside the looking, which must not wait for a writer.
func (s *Store) startPresence() (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		ticker := time.NewTicker(presenceAfter)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				s.unpublish()
				return
			case now := <-ticker.C:
				s.publish(now)
			case <-s.watchers.left:
			}
			s.unpublish()
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// publish tells who has waited for a while. A failure costs no more than that
// a list is incomplete until the next time.
func (s *Store) publish(now time.Time) {
	if here := s.watchers.unpublished(now); len(here) > 0 {
		ctx, cancel := s.background()
		defer cancel()
		_, _ = s.changeAny(ctx, "publish", publish, encode(here), presenceTTL.Milliseconds())
	}
}

// unpublish tells who waits no more. It is done on behalf of those who have
// left, so that neither the end of the store nor a busy database prevents it;
// if it fails all the same they are seen until their presence expires.
func (s *Store) unpublish() {
	gone := s.watchers.takeGone()
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
	defer cancel()
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return
	}
	_ = s.persist(ctx, func() error {
		_, err := s.each().exec(ctx, unpublish, encode(gone))
		return err
	})
}

// unpublished returns who is to be told now, and counts them as told.
func (ws *watchers) unpublished(now time.Time) (here [][2]string) {
	ws.Lock()
	defer ws.Unlock()
	for _, name := range ws.namesLocked() {
		for _, w := range ws.Of(name) {
			if !w.fair && now.Sub(w.since) >= presenceAfter && now.Sub(w.published) >= presenceRefresh {
				w.published = now
				here = append(here, [2]string{w.name, w.owner})
			}
		}
	}
	return here
}

func (ws *watchers) takeGone() [][2]string {
	ws.Lock()
	defer ws.Unlock()
	gone := ws.gone
	ws.gone = nil
	return gone
}
