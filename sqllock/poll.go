package sqllock

import (
	"database/sql"
	"time"
)

// linger is how long the poller stays when nobody watches any more, because
// the next one often comes soon.
const linger = time.Second

// poll looks at the watched names until nobody watches or the store is closed.
// There is at most one per store.
func (s *Store) poll() {
	seen := s.dialect.changes(s.ctx, s.db)
	defer seen.stop()
	stopPresence := s.startPresence()
	defer stopPresence()
	pace := pace{told: seen.events != nil}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		names, encoded := s.watchers.watched()
		events := seen.events
		if len(names) == 0 || pace.pending {
			events = nil // a look would not come, or not come sooner
		}
		select {
		case <-s.ctx.Done():
			return
		case <-events:
			pace.changed(time.Now())
		case <-s.watchers.kick:
			pace.asked(time.Now())
		case <-timer.C:
			now := time.Now()
			switch {
			case len(names) > 0:
				expiry, err := s.look(names, encoded)
				pace.looked(now, time.Now(), expiry, err)
			case s.watchers.retire():
				return
			default:
				pace.idle(now)
			}
		}
		timer.Reset(time.Until(pace.next))
	}
}

// state is what a look says about one name.
type state struct {
	index     int
	remaining int64 // of the lock; zero if it is free
	head      sql.NullString
	headLeft  sql.NullInt64
}

// look wakes those for whom trying is worth it, and returns how long it takes
// until a lock or a place expires that somebody waits for; zero if none does
// before there is another look anyway.
func (s *Store) look(names []string, encoded string) (expiry time.Duration, err error) {
	var states []state
	err = each(s.ctx, s.stmts[look], []any{encoded, toldInterval.Milliseconds()}, func(scan func(...any) error) error {
		var st state
		err := scan(&st.index, &st.remaining, &st.head, &st.headLeft)
		states = append(states, st)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	for _, st := range states {
		left := st.remaining
		if left == 0 {
			left = st.headLeft.Int64
			for _, w := range s.watchers.byName[names[st.index]] {
				if !w.fair || !st.head.Valid || st.head.String == w.owner {
					w.wake()
				}
			}
		}
		if d := remaining(left); d > 0 && (expiry == 0 || d < expiry) {
			expiry = d
		}
	}
	return expiry, nil
}
