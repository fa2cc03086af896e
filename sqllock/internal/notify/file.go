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
