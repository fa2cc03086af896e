package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// List counts fair waiters by their places. The others get rows when they have waited for
// a while, so that short waits write nothing.
const (
	publishAfter   = 250 * time.Millisecond
	publishTTL     = 30 * time.Second
	publishRefresh = 10 * time.Second
)

// publishWaiters writes the rows of waiters until stop is called, which deletes what is
// left. It runs beside the polling, which must not wait for a writer.
func (s *Store) publishWaiters() (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		ticker := time.NewTicker(publishAfter)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				s.unpublish()
				return
			case now := <-ticker.C:
				s.publish(now)
			case <-s.waiters.left:
			}
			s.unpublish()
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

// publish writes the rows of waiters. If that fails, a list is incomplete until the next
// time.
func (s *Store) publish(now time.Time) {
	if due := s.waiters.takeDue(now); len(due) > 0 {
		ctx, cancel := s.background()
		defer cancel()
		_, _ = s.change(ctx, "publish", &batch.Job{}, statement.Publish, sqldb.JSON(due), publishTTL.Milliseconds())
	}
}

// unpublish deletes the rows of waiters that have left, also while the store is being
// closed. If that fails, the rows expire.
func (s *Store) unpublish() {
	gone := s.waiters.takeGone()
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
	defer cancel()
	_ = s.writeAnyway(ctx, func() error {
		_, err := s.run().Exec(ctx, statement.Unpublish, sqldb.JSON(gone))
		return err
	})
}

// takeDue returns the waiters whose rows are to be written now.
func (ws *waiters) takeDue(now time.Time) (due [][2]string) {
	ws.Lock()
	defer ws.Unlock()
	for w := range ws.AllLocked() {
		if !w.fair && now.Sub(w.since) >= publishAfter && now.Sub(w.published) >= publishRefresh {
			w.published = now
			due = append(due, [2]string{w.name, w.owner})
		}
	}
	return due
}

func (ws *waiters) takeGone() [][2]string {
	ws.Lock()
	defer ws.Unlock()
	gone := ws.gone
	ws.gone = nil
	return gone
}
