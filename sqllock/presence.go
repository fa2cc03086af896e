package sqllock

import (
	"context"
	"time"
)

// A fair waiter is seen by its place. The others are told to the database when
// they have waited for a while, so that short waits write nothing.
const (
	presenceAfter   = 250 * time.Millisecond
	presenceTTL     = 30 * time.Second
	presenceRefresh = 10 * time.Second
	withdrawLimit   = time.Second
)

// announce tells who waits and who does so no more. A failure costs nothing
// but that a list is incomplete for a while.
func (s *Store) announce(now time.Time) {
	here, gone := s.watchers.presence(now)
	if len(here) > 0 {
		_, _ = s.change(s.ctx, "publish", publish, encode(here), presenceTTL.Milliseconds())
	}
	if len(gone) > 0 {
		_, _ = s.change(s.ctx, "unpublish", unpublish, encode(gone))
	}
}

// withdraw is the last announce, when the store is closed already.
func (s *Store) withdraw() {
	if _, gone := s.watchers.presence(time.Now()); len(gone) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
		defer cancel()
		_, _ = s.stmts[unpublish].ExecContext(ctx, encode(gone))
	}
}

// presence returns who is to be published now, and who is no more.
func (ws *watchers) presence(now time.Time) (here, gone [][2]string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, all := range ws.byName {
		for _, w := range all {
			// Those published in the last moments wait for the others, so
			// that all of them go in one statement.
			if !w.fair && now.Sub(w.since) >= presenceAfter && now.Sub(w.published) >= presenceRefresh {
				w.published = now
				here = append(here, [2]string{w.name, w.owner})
			}
		}
	}
	for _, key := range ws.gone {
		gone = append(gone, [2]string{key.name, key.owner})
	}
	ws.gone = nil
	return here, gone
}
