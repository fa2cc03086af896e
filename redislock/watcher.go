package redislock

import "sync"

// watcher is one who waits for messages.
type watcher struct {
	wake  func()
	lost  func() // called instead, in a sharded subscription, when it has ended; may be nil
	alone bool   // nobody else uses its channel, now or later

	mu   sync.Mutex
	over bool
}

// call wakes, unless it is over.
func (w *watcher) call(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		f()
	}
}

// silence makes sure that nothing is called any more.
func (w *watcher) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}
