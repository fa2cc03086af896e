package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// tasks are goroutines that may outlast the call that started them. Close waits for them.
type tasks struct {
	ctx    context.Context // ends when the tasks are closed
	cancel context.CancelFunc

	mu      sync.Mutex // no task starts after close
	running sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// start runs f in the background. It reports false if the tasks are closed.
func (t *tasks) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed() {
		return false
	}
	t.running.Go(f)
	return true
}

// call runs f as a task and returns its error. If ctx ends first or the tasks are closed, f
// goes on: the caller must not read what f writes.
func (t *tasks) call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !t.start(func() { done <- f() }) {
		return driver.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return noAnswer(&leftError{cause: context.Cause(ctx), unsent: true})
	case <-t.ctx.Done():
		return driver.ErrClosed
	}
}

func (t *tasks) closed() bool { return t.ctx.Err() != nil }

// close lets no further task start. It does not wait.
func (t *tasks) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel()
}

// closeTimeout limits each wait of Store.Close. Nothing can interrupt a client that talks to a
// server which does not answer: the call ends by the client's own timeout, or with the client.
const closeTimeout = 250 * time.Millisecond

// waitBriefly returns when wait does, and after closeTimeout at the latest.
func waitBriefly(wait func()) {
	ended := make(chan struct{})
	go func() {
		wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}
