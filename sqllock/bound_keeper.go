package sqllock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// probeEvery is between two looks whether a connection with locks is alive.
	probeEvery = time.Second
	// idleProbeEvery is the same for one without. It is less than the shortest
	// idle timeout that a server is left with.
	idleProbeEvery = shortTimeout / 2
	// maxProbes is how many connections a Renew asks at a time.
	maxProbes = 16
)

// hurryLocked makes the keeper look no later than then.
func (s *BoundStore) hurryLocked(then time.Time) {
	if then.Before(s.patrol) {
		s.patrol = then
		signal(s.kick)
	}
}

// keep looks after links and bonds until the store is closed.
func (s *BoundStore) keep() {
	timer := time.NewTimer(probeEvery)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(s.look(time.Now())))
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
	}
}

// look gives up what has expired, finds out which connections are gone, and
// returns when to look again.
func (s *BoundStore) look(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patrol = now.Add(probeEvery)
	busy := make(map[*link]bool)
	for _, b := range s.bonds {
		if b.link != nil {
			busy[b.link] = true
		}
		switch {
		case b.phase != held:
		case !now.Before(b.deadline):
			s.expireLocked(b)
		case b.deadline.Before(s.patrol):
			s.patrol = b.deadline
		}
	}
	for l := range s.links {
		s.checkLocked(l, now, busy[l])
	}
	return s.patrol
}

// checkLocked ends a link that does not answer and asks one that has not been
// asked for a while.
func (s *BoundStore) checkLocked(l *link, now time.Time, busy bool) {
	every := int64(idleProbeEvery)
	if busy {
		every = int64(probeEvery) * 9 / 10 // the keeper comes about every second
	}
	switch began := l.began.Load(); {
	case began != 0 && now.UnixNano()-began > int64(callLimit):
		s.work.Go(func() { s.lose(l) })
	case began == 0 && now.UnixNano()-l.proven.Load() > every:
		s.work.Go(func() { _ = s.probe(s.ctx, l) }) // what it finds it does
	}
}

// expireLocked gives up a lock whose TTL is over.
func (s *BoundStore) expireLocked(b *bond) {
	b.phase = leaving
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		// What fails is tried again, since the TTL is still over; giveUp says
		// whether there is anything left to try.
		_ = s.giveUp(ctx, b)
	})
}

// probe finds out whether a link is alive and the session still the same.
// driver.ErrNotHeld says that it is not; other errors say nothing.
func (s *BoundStore) probe(ctx context.Context, l *link) error {
	if err := l.enter(ctx); err != nil {
		if l.dead.Load() {
			return driver.ErrNotHeld
		}
		return err
	}
	return s.perform(ctx, l, func() error { return s.verify(l) })
}

// verify is probe for whoever uses the link already.
func (s *BoundStore) verify(l *link) error {
	// Once more, because somebody may have cut off the statement and not the
	// connection.
	for range 2 {
		var id string
		err := l.call(func(ctx context.Context) error {
			return l.conn.QueryRowContext(ctx, s.server.identity).Scan(&id)
		})
		if err == nil && id == l.id {
			return nil
		}
	}
	s.lose(l)
	return driver.ErrNotHeld
}

// ask sends something that changes nothing over a link that was entered. A link
// that fails is verified at once: the keeper would leave one without locks alone
// for long, and those who wait for others to unlock depend on it.
func (s *BoundStore) ask(l *link, send func(context.Context) error) error {
	err := l.call(send)
	if err != nil {
		_ = s.verify(l) // what it finds it does
	}
	return err
}

// confirm starts the TTL of each grant again whose connection is alive.
func (s *BoundStore) confirm(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	byLink := make(map[*link][]int)
	s.mu.Lock()
	for i, grant := range grants {
		if b := s.ownedLocked(grant); b != nil {
			byLink[b.link] = append(byLink[b.link], i)
		} else {
			errs[i] = driver.ErrNotHeld
		}
	}
	s.mu.Unlock()
	seats := make(chan struct{}, maxProbes)
	var all sync.WaitGroup
	for l, of := range byLink {
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			err := s.fail(ctx, "renew", s.probe(ctx, l))
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, i := range of {
				errs[i] = s.confirmLocked(grants[i], err)
			}
		})
	}
	all.Wait()
	return errs
}

// ownedLocked is the bond of a grant that is held, nil if it is not.
func (s *BoundStore) ownedLocked(grant driver.Grant) *bond {
	b := s.bonds[grant.Name]
	if b == nil || b.owner != grant.Owner || b.token != grant.Token || b.phase != held || !time.Now().Before(b.deadline) {
		return nil
	}
	return b
}

func (s *BoundStore) confirmLocked(grant driver.Grant, err error) error {
	if err != nil {
		return err
	}
	b := s.ownedLocked(grant)
	if b == nil {
		return driver.ErrNotHeld
	}
	s.extendLocked(b, grant.TTL)
	return nil
}
