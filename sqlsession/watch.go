package sqlsession

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Watch implements driver.Watcher. Waiting costs no connection: one goroutine
// looks for all names that are watched, with one query. It sees a lock being free
// whatever the reason.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.begin(ctx, "watch"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	w := &watch{name: req.Name, key: s.key(req.Name).server, wake: wake}
	if !s.watchers.Join(w.name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.watchers.remove(w) }, nil
}

// watch is one who wants to be woken.
type watch struct {
	name string
	key  any
	wake func()
}

// watchers are all who want to be woken.
type watchers struct {
	sqldb.PollGroup[*watch]
	keys []any // of the names that are watched, in their order
}

func newWatchers() watchers { return watchers{PollGroup: sqldb.NewPollGroup[*watch]()} }

// remove ends a watch. Calling it twice is fine.
func (ws *watchers) remove(w *watch) {
	ws.Lock()
	defer ws.Unlock()
	ws.Remove(w.name, w)
}

// wake wakes who waits for name.
func (ws *watchers) wake(name string) {
	ws.Lock()
	defer ws.Unlock()
	for _, w := range ws.Of(name) {
		w.wake()
	}
}

func (ws *watchers) wakeAll() {
	ws.Lock()
	defer ws.Unlock()
	for _, name := range ws.namesLocked() {
		for _, w := range ws.Of(name) {
			w.wake()
		}
	}
}

func (ws *watchers) close() {
	ws.Lock()
	defer ws.Unlock()
	ws.CloseLocked()
}

// watched returns the names that are watched and their keys. If there are none
// the polling ends.
func (ws *watchers) watched() (names []string, keys []any) {
	ws.Lock()
	defer ws.Unlock()
	names = ws.namesLocked()
	ws.Polling = len(names) > 0
	return names, ws.keys
}

// namesLocked returns the names that are watched, and keeps keys in step with them.
func (ws *watchers) namesLocked() []string {
	names, changed := ws.Names()
	if changed {
		ws.keys = make([]any, 0, len(names))
		for _, name := range names {
			ws.keys = append(ws.keys, ws.Of(name)[0].key)
		}
	}
	return names
}

// The time between two looks follows how long nothing has happened.
const (
	minLook      = time.Millisecond
	maxLook      = 100 * time.Millisecond
	lookFraction = 16
	// While it may be a busy lock that changes hands all the time, looks come
	// often enough to see the pause that a process makes after its turn.
	lookEager = 200 * time.Millisecond
	eagerLook = 2 * minLook
	// lookRest is the part of the time that the server is left alone, in times
	// of what a look takes.
	lookRest = 2
	// maxKeys bounds one query.
	maxKeys = 2000
)

// poll looks until nobody watches any more or the store is closed.
func (s *Store) poll() {
	moved := time.Now()
	free := make(map[string]bool) // as of the last look
	failing := false
	timer := time.NewTimer(minLook)
	defer timer.Stop()
	for {
		names, keys := s.watchers.watched()
		if names == nil || s.ctx.Err() != nil {
			return
		}
		began := time.Now()
		now, err := s.lookAll(names, keys)
		switch {
		case err != nil:
			failing = true
		case failing:
			failing, moved = false, time.Now()
			s.watchers.wakeAll()
		}
		for name := range now {
			if !free[name] {
				moved = time.Now()
			}
			s.watchers.wake(name)
		}
		free = now
		pause := lookPause(time.Since(moved))
		if failing {
			pause = maxLook
		}
		rest := lookRest * time.Since(began)
		timer.Reset(max(pause, rest))
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		case <-s.watchers.Kick:
			moved = time.Now()
			if backoff.Sleep(s.ctx, max(minLook, rest)) != nil {
				return
			}
		}
	}
}

// lookPause is the time until the next look if nothing has happened for so long.
func lookPause(quiet time.Duration) time.Duration {
	if quiet < lookEager {
		return min(max(quiet/lookFraction, minLook), eagerLook)
	}
	return min(eagerLook+(quiet-lookEager)/lookFraction, maxLook)
}

// lookAll returns which of the names are free.
func (s *Store) lookAll(names []string, keys []any) (map[string]bool, error) {
	free := make(map[string]bool)
	for first := 0; first < len(names); first += maxKeys {
		last := min(first+maxKeys, len(names))
		numbers, err := s.lookKeys(keys[first:last])
		if err != nil {
			return nil, err
		}
		for _, n := range numbers {
			if n < 1 || n > last-first {
				return nil, fmt.Errorf("the server counts up to %d", n)
			}
			free[names[first+n-1]] = true
		}
	}
	return free, nil
}

// lookKeys asks the server, on the connection that Session has anyway, which
// may be the only one. ForUpdate takes one from the pool for a moment.
func (s *Store) lookKeys(keys []any) (numbers []int, err error) {
	list := s.dialect.list(keys)
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	if s.scheme == ForUpdate {
		rows, err := s.db.QueryContext(ctx, s.server.look, list)
		if err != nil {
			return nil, err
		}
		return scanNumbers(rows)
	}
	c, err := s.sharedConn(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.leave()
	err = s.ask(c, func(ctx context.Context) error {
		rows, err := c.look.QueryContext(ctx, list)
		if err != nil {
			return err
		}
		numbers, err = scanNumbers(rows)
		return err
	})
	return numbers, err
}

func scanNumbers(rows *sql.Rows) (numbers []int, err error) {
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, rows.Err()
}
