package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Watch implements driver.Watcher. Waiting costs no connection: one goroutine
// looks for all names that are watched, with one query. It sees a lock being free
// whatever the reason.
func (s *BoundStore) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.begin(ctx, "watch"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	w := &boundWatch{name: req.Name, mark: s.key(req.Name).mark, wake: wake}
	if !s.watchers.add(w, func() { s.work.Go(s.pollBound) }) {
		return nil, driver.ErrClosed
	}
	return func() { s.watchers.remove(w) }, nil
}

// boundWatch is one who wants to be woken.
type boundWatch struct {
	name string
	mark any
	wake func()
}

func (w *boundWatch) subject() string { return w.name }

// boundWatchers are all who want to be woken.
type boundWatchers struct {
	audience[*boundWatch]
	marks []any // of the names that are watched, in their order
}

func newBoundWatchers() boundWatchers { return boundWatchers{audience: newAudience[*boundWatch]()} }

// remove ends a watch. Calling it twice is fine.
func (ws *boundWatchers) remove(w *boundWatch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.removeLocked(w)
}

// wake wakes who waits for name.
func (ws *boundWatchers) wake(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byName[name] {
		w.wake()
	}
}

func (ws *boundWatchers) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, all := range ws.byName {
		for _, w := range all {
			w.wake()
		}
	}
}

func (ws *boundWatchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closeLocked()
}

// watched returns the names that are watched and their marks. If there are none
// the polling ends.
func (ws *boundWatchers) watched() (names []string, marks []any) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names, anew := ws.collectLocked()
	if anew {
		ws.marks = make([]any, 0, len(names))
		for _, name := range names {
			ws.marks = append(ws.marks, ws.byName[name][0].mark)
		}
	}
	ws.polling = len(names) > 0
	return names, ws.marks
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
	// maxMarks bounds one query.
	maxMarks = 2000
)

// pollBound looks until nobody watches any more or the store is closed.
func (s *BoundStore) pollBound() {
	moved := time.Now()
	free := make(map[string]bool) // as of the last look
	failing := false
	timer := time.NewTimer(minLook)
	defer timer.Stop()
	for {
		names, marks := s.watchers.watched()
		if names == nil || s.ctx.Err() != nil {
			return
		}
		began := time.Now()
		now, err := s.lookAll(names, marks)
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
		case <-s.watchers.kick:
			moved = time.Now()
			if pauseFor(s.ctx, max(minLook, rest)) != nil {
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
func (s *BoundStore) lookAll(names []string, marks []any) (map[string]bool, error) {
	free := make(map[string]bool)
	for first := 0; first < len(names); first += maxMarks {
		last := min(first+maxMarks, len(names))
		numbers, err := s.lookMarks(marks[first:last])
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

// lookMarks asks the server, on the connection that Session has anyway, which
// may be the only one. ForUpdate takes one from the pool for a moment.
func (s *BoundStore) lookMarks(marks []any) (numbers []int, err error) {
	list := s.dialect.list(marks)
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	if s.scheme == ForUpdate {
		rows, err := s.db.QueryContext(ctx, s.server.look, list)
		if err != nil {
			return nil, err
		}
		return scanNumbers(rows)
	}
	l, err := s.sharedLink(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.leave()
	err = s.ask(l, func(ctx context.Context) error {
		rows, err := l.look.QueryContext(ctx, list)
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
