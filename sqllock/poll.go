package sqllock

import (
	"database/sql"
	"time"
)

// linger is how long the poller stays when nobody watches any more, because
// the next one often comes soon.
const linger = 5 * time.Second

// poll looks at the watched names until nobody watches or the store is closed.
// There is at most one per store.
func (s *Store) poll() {
	seen := s.dialect.follow(s)
	defer seen.stop()
	stopPresence := s.startPresence()
	defer stopPresence()
	pace := seen.pace
	timer := time.NewTimer(0)
	defer timer.Stop()
	lingering := false
	for {
		names, encoded := s.watchers.watched()
		events := seen.events
		if len(names) == 0 || pace.waiting() {
			events = nil // a look would not come, or not come sooner
		}
		select {
		case <-s.closing:
			return
		case <-events:
			pace.changed(time.Now())
		case <-s.watchers.Kick:
			pace.asked(time.Now())
		case <-timer.C:
			now := time.Now()
			switch {
			case len(names) > 0:
				lingering = false
				seen, err := s.look(names, encoded)
				pace.looked(now, time.Now(), seen, err)
			case lingering && s.watchers.retire():
				return
			default:
				lingering = true
				pace.idle(now)
			}
		}
		timer.Reset(time.Until(pace.due()))
	}
}

// state is what a look says about one name.
type state struct {
	index     int
	remaining int64 // of the lock; zero if it is free
	head      sql.NullString
	headLeft  sql.NullInt64
	recent    bool // it was granted a moment ago
}

// sight is what a look says about all names.
type sight struct {
	expiry time.Duration // until a lock or a place expires; zero if none does before there is another look anyway
	moving bool          // a lock is free, or has just changed hands
}

// look wakes those for whom trying is worth it.
func (s *Store) look(names []string, encoded string) (seen sight, err error) {
	var states []state
	ctx, cancel := s.background()
	defer cancel()
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return sight{}, ctx.Err()
	}
	err = s.each().each(ctx, look, []any{encoded, toldInterval.Milliseconds()}, func(scan func(...any) error) error {
		var st state
		err := scan(&st.index, &st.remaining, &st.head, &st.headLeft, &st.recent)
		states = append(states, st)
		return err
	})
	<-s.reading
	if err != nil {
		return sight{}, err
	}
	s.watchers.Lock()
	defer s.watchers.Unlock()
	for _, st := range states {
		left := st.remaining
		seen.moving = seen.moving || left == 0 || st.recent
		if left == 0 {
			left = st.headLeft.Int64
			for _, w := range s.watchers.Of(names[st.index]) {
				if !w.fair || !st.head.Valid || st.head.String == w.owner {
					if w.fair { // whose turn it is, so that it need not look again
						s.refused.remove(w.name)
					}
					w.wake()
				}
			}
		}
		if d := remaining(left); d > 0 && (seen.expiry == 0 || d < seen.expiry) {
			seen.expiry = d
		}
	}
	return seen, nil
}
