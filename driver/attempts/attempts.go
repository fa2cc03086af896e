// Package attempts undoes attempts that a server carries out after their own
// release.
//
// A caller may leave while its attempt is still on its way to the server, in
// a connection that is slow or broken. The release that follows takes another
// connection, overtakes the attempt and finds nothing. Then the server carries
// out the attempt, and its lock blocks all contenders until it expires. A store
// records such attempts in a [Log] and asks it before every release. The Log
// releases their owners again until no attempt can arrive any more.
package attempts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// lateness is how long after it lost its answer an attempt may still be
	// carried out. The Log undoes it for that long.
	lateness = time.Minute
	// giveUp is how long the Log tries to undo while the server does not answer.
	giveUp = 10 * time.Minute
	// The pauses between two calls that undo the same attempt.
	minPause = 20 * time.Millisecond
	maxPause = 5 * time.Second
	// callLimit bounds one such call.
	callLimit = 5 * time.Second
	// closeLimit bounds all calls of Close together.
	closeLimit = time.Second
	// maxRecords bounds the memory that an outage can take. Further attempts
	// are left to expire.
	maxRecords = 10_000
)

// Log records attempts of unknown outcome. It is safe for concurrent use.
type Log struct {
	undo    func(ctx context.Context, name string, owner driver.Owner) error
	records atomic.Int64 // len(owners): if it is zero, a release costs one load

	mu      sync.Mutex
	owners  map[driver.Owner]*record
	due     []*record // to be undone now
	working bool      // a goroutine undoes the records in due
	cleaned time.Time // when old records were last removed
	closed  bool
	work    sync.WaitGroup
	ctx     context.Context // of the background calls
	cancel  context.CancelFunc
}

// record describes the attempts of one owner.
type record struct {
	name       string
	owner      driver.Owner
	since      time.Time     // when the last caller left, or the last answer was lost
	underway   int           // attempts that have not ended
	ended      chan struct{} // closed when no attempt is under way any more
	unanswered bool          // an attempt ended without an answer
	silent     time.Time     // when the server last did not answer an undo; zero if it always did
	released   bool          // the owner was released: its attempts are undone from now on
	overdue    bool          // the release did not wait for the attempts under way
	releases   int           // releases that are under way
	pause      time.Duration // before the next undo
	timer      *time.Timer   // until the next undo; nil if none is scheduled
}

// New returns an empty log. undo releases what owner has under name. An error other than
// [driver.ErrNotHeld] means that the server did not answer.
func New(undo func(ctx context.Context, name string, owner driver.Owner) error) *Log {
	l := &Log{undo: undo, owners: make(map[driver.Owner]*record)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Leave records that the caller of an attempt leaves before the outcome is
// known. The store calls ended once, when the attempt has ended. answered says
// whether the server answered. If it did not, the attempt may still be carried
// out.
func (l *Log) Leave(name string, owner driver.Owner) (ended func(answered bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recordLocked(name, owner)
	if r == nil {
		return func(bool) {}
	}
	if r.underway == 0 {
		r.ended = make(chan struct{})
	}
	r.underway++
	return func(answered bool) { l.end(r, answered) }
}

// Unanswered records an attempt that ended without an answer.
func (l *Log) Unanswered(name string, owner driver.Owner) { l.Leave(name, owner)(false) }

// recordLocked returns the record of owner, or nil if there is no room for one.
func (l *Log) recordLocked(name string, owner driver.Owner) *record {
	if l.closed {
		return nil
	}
	r := l.owners[owner]
	if r == nil {
		if l.forgetOldLocked(); len(l.owners) >= maxRecords {
			return nil
		}
		r = &record{name: name, owner: owner, pause: minPause}
		l.owners[owner] = r
		l.records.Add(1)
	}
	r.since = time.Now()
	return r
}

// forgetOldLocked forgets owners that were not released while their attempts could arrive. It
// runs at most once a second, because it examines all records.
func (l *Log) forgetOldLocked() {
	if time.Since(l.cleaned) < time.Second {
		return
	}
	l.cleaned = time.Now()
	for _, r := range l.owners {
		if !r.released && r.underway == 0 && time.Since(r.since) > lateness {
			l.forgetLocked(r)
		}
	}
}

func (l *Log) forgetLocked(r *record) {
	if l.owners[r.owner] == r {
		delete(l.owners, r.owner)
		l.records.Add(-1)
	}
}

// end records the end of an attempt whose caller has left.
func (l *Log) end(r *record, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.underway--
	if !answered {
		r.unanswered = true
		r.since = time.Now()
	}
	if r.underway > 0 {
		return
	}
	close(r.ended)
	switch {
	case r.released && r.overdue:
		l.enqueueLocked(r)
	case !r.unanswered:
		l.forgetLocked(r) // a release that is sent from now on finds its lock
	}
}

// Settle is called before the release of grant is sent. The store calls released when
// the release has ended. If the grant has no token, Settle blocks until no attempt
// of the owner is under way. With a token, the lock is known to be held, and the release
// must not wait for another attempt on a connection that is stuck.
//
// After the release, the Log undoes attempts of the owner that lost their answers
// or are still under way. It does not do so before, or the release would find nothing
// and report a loss. If ctx ends first, the error wraps [driver.ErrUnreachable], and
// the Log undoes attempts that are under way when they have ended.
func (l *Log) Settle(ctx context.Context, grant driver.Grant) (released func(), err error) {
	if l.records.Load() == 0 {
		return nothing, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.owners[grant.Owner]
	if r == nil {
		return nothing, nil
	}
	r.released = true
	for r.underway > 0 && grant.Token == 0 {
		ended := r.ended
		l.mu.Unlock()
		var err error
		select {
		case <-ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		l.mu.Lock()
		if err != nil && r.underway > 0 {
			r.overdue = true
			return nothing, fmt.Errorf("%w: an earlier attempt has not ended: %w", driver.ErrUnreachable, err)
		}
	}
	r.overdue = r.overdue || r.underway > 0
	if !r.unanswered && !r.overdue {
		l.forgetLocked(r)
		return nothing, nil
	}
	r.releases++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.releases--
		if r.underway == 0 {
			l.scheduleLocked(r)
		}
	}), nil
}

// nothing is the callback of most releases.
func nothing() {}

func (l *Log) scheduleLocked(r *record) {
	if l.closed || r.timer != nil || r.releases > 0 {
		return
	}
	pause := r.pause - r.pause/4 + rand.N(r.pause/2) // so that stores whose calls ended together do not go on together
	r.pause = min(2*r.pause, maxPause)
	r.timer = time.AfterFunc(pause, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.timer = nil
		l.enqueueLocked(r)
	})
}

// enqueueLocked lets the records that were due before r be undone first. One goroutine undoes
// one record at a time, to spare an overloaded server.
func (l *Log) enqueueLocked(r *record) {
	if l.closed || r.releases > 0 { // the end of the release calls scheduleLocked
		return
	}
	l.due = append(l.due, r)
	if !l.working {
		l.working = true
		l.work.Go(l.undoDue)
	}
}

func (l *Log) undoDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > 0 && !l.closed {
		r := l.due[0]
		l.due = l.due[1:]
		l.mu.Unlock()
		answered := l.call(l.ctx, r)
		l.mu.Lock()
		l.afterCallLocked(r, answered)
		if !answered {
			l.postponeLocked(r.name)
		}
	}
	l.working = false
}

// afterCallLocked forgets r, or schedules its next undo.
func (l *Log) afterCallLocked(r *record, answered bool) {
	age := time.Since(r.since)
	finished := age > giveUp
	if answered { // after an outage the attempt may be carried out later than the undo
		finished = r.underway == 0 && (!r.unanswered || min(age, time.Since(r.silent)) > lateness)
	} else {
		r.silent = time.Now()
	}
	if finished {
		l.forgetLocked(r)
	} else {
		l.scheduleLocked(r)
	}
}

// postponeLocked treats the due records of name as if the server had not answered for
// them. A locked row may block only this name, and other names must not wait until
// every owner of this name was tried.
func (l *Log) postponeLocked(name string) {
	l.due = slices.DeleteFunc(l.due, func(r *record) bool {
		if r.name == name {
			l.afterCallLocked(r, false)
		}
		return r.name == name
	})
}

func (l *Log) call(ctx context.Context, r *record) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := l.undo(ctx, r.name, r.owner)
	return err == nil || errors.Is(err, driver.ErrNotHeld)
}

// Close ends the background work, and undoes every released owner once more.
// The error says for how many owners the server did not answer.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var rest []*record
	for _, r := range l.owners {
		if r.timer != nil {
			r.timer.Stop()
		}
		if r.released {
			rest = append(rest, r)
		}
	}
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	left := 0
	for _, r := range rest {
		if ctx.Err() != nil || !l.call(ctx, r) {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("%w: %d attempts may still be carried out and are left to expire", driver.ErrUnreachable, left)
	}
	return nil
}
