package notify

import (
	"os"
	"sync"
	"time"
)

// statInterval is how often a file is examined that the system does not watch, or that does
// not exist at the moment.
const statInterval = 5 * time.Millisecond

// File returns a source that receives when the file at path is written, also if it is
// removed and created again. It never opens the file: closing it would drop the locks that
// SQLite, in the same process, has on it. An empty path is a database in memory.
func File(path string) Source {
	if path == "" {
		return Source{Schedule: &fileSchedule{}, Stop: func() {}}
	}
	events := make(chan struct{})
	done := make(chan struct{})
	var work sync.WaitGroup
	emit := func() bool {
		select {
		case events <- struct{}{}:
			return true
		case <-done:
			return false
		}
	}
	interrupt := func() {}
	if watch, err := newInotify(path); err == nil {
		interrupt = watch.interrupt
		work.Go(func() { watch.run(emit, done) })
	} else {
		work.Go(func() { statFile(path, emit, done) })
	}
	return Source{Events: events, Schedule: &fileSchedule{notified: true}, Stop: func() {
		close(done)
		interrupt()
		work.Wait()
	}}
}

// statFile follows a file without help from the system. A write that leaves size and time
// as they were comes within a tick of the clock after another write, and the polls that
// follow that write find it.
func statFile(path string, emit func() bool, done <-chan struct{}) {
	var size int64
	var modified time.Time
	ticker := time.NewTicker(statInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() == size && info.ModTime().Equal(modified) {
			continue
		}
		size, modified = info.Size(), info.ModTime()
		if !emit() {
			return
		}
	}
}

const (
	// unnotifiedInterval is the time between two polls of a file of which changes are not notified.
	unnotifiedInterval = 250 * time.Millisecond

	// A change is notified when it is written and visible when it is committed, which
	// the disk decides. So polls follow it at growing distances.
	firstFollow = time.Millisecond
	lastFollow  = 128 * time.Millisecond

	// Polls may take a tenth of the time, so that a busy database costs a waiting process
	// a tenth of a core. What they take beyond that is a debt. A small debt is fine. The
	// debt of a poll that had to wait itself must not delay the next polls for long.
	costShare = 10
	fineDebt  = 20 * time.Millisecond
	maxDebt   = 30 * time.Millisecond
	minGap    = time.Millisecond

	// More than two processes together take a quarter of a core. A poll that had to wait does not
	// delay the next one of its process for long here, either.
	crowdShare = 4
	maxGap     = 100 * time.Millisecond
)

// fileSchedule is for a file, where a poll costs this machine.
type fileSchedule struct {
	times
	notified bool          // changes are notified
	pending  bool          // a change asks for a poll that has not been made
	follow   time.Duration // the distance to the next poll that follows a change; zero if none
	last     time.Time     // when the last poll ended
	cost     time.Duration // what it took
	debt     time.Duration // what polls took too much, as of last
	turn     time.Time     // until then it is for other processes to poll
}

func (s *fileSchedule) Pending() bool { return s.pending }

// Changed lets a poll that is not cheap wait a little for the commit.
func (s *fileSchedule) Changed(now time.Time) {
	s.pending = true
	s.follow = firstFollow
	s.Asked(later(now.Add(min(s.cost, firstFollow)), s.turn))
}

func (s *fileSchedule) Polled(start, end time.Time, r Result, err error) {
	s.pending = false
	s.cost = end.Sub(start)
	paid := end.Sub(s.last) / costShare
	s.debt = min(max(s.debt-paid, 0)+s.cost, maxDebt)
	s.last = end
	s.free = end.Add(max(minGap, costShare*(s.debt-fineDebt)))
	s.turn = end
	if n := r.crowd(); n > 2 {
		s.turn = end.Add(min(time.Duration(crowdShare*n)*s.cost, maxGap))
	}
	wait := NotifiedInterval
	switch {
	case !s.notified || err != nil:
		wait = unnotifiedInterval
	case s.follow > lastFollow:
		s.follow = 0
	}
	if s.follow > 0 {
		wait = min(wait, s.follow)
		s.follow *= 2
	}
	s.pollAfter(end, wait, r)
	s.next = later(s.next, s.turn)
}

func (s *fileSchedule) Idle(now time.Time) {
	s.pending = false
	s.follow = 0
	s.next = now.Add(Linger)
}
