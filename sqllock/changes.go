package sqllock

import (
	"os"
	"sync"
	"time"
)

// changes tell that somebody, in whatever process, has written to the database.
type changes struct {
	events <-chan struct{} // nil where nothing can tell
	pace   pacer           // when to look
	stop   func()          // ends it and waits
}

// noChanges is for databases that cannot tell.
func noChanges() changes { return changes{stop: func() {}} }

// unseen is for servers that cannot tell.
func unseen() changes { return changes{pace: &tempo{}, stop: func() {}} }

// statInterval is between two looks at a file that the system does not watch
// for us, or that is not there at the moment.
const statInterval = 5 * time.Millisecond

// followFile tells when the file at path is written, also if it is removed and
// created again. It never opens the file: closing it would drop the locks that
// SQLite, in the same process, has on it.
func followFile(path string) changes {
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
	if notifier, err := newNotifier(path); err == nil {
		interrupt = notifier.interrupt
		work.Go(func() { notifier.run(emit, done) })
	} else {
		work.Go(func() { statFile(path, emit, done) })
	}
	return changes{events: events, stop: func() {
		close(done)
		interrupt()
		work.Wait()
	}}
}

// statFile does without help from the system. A write that leaves size and
// time as they were comes within a tick of the clock after another one, and
// the looks that follow that one see it.
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
