package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// sender takes calls to the server. Calls that come while others are under way
// are collected and go out together, in one pipeline, because many small
// requests cost the server and the client more than one large one. A call that
// comes alone goes out alone, at once.
//
// Callers wait beside the call and not in it, so that they can leave when their
// context is done: the client's own calls end only by their timeouts.
type sender struct {
	client redis.UniversalClient

	mu     sync.Mutex
	queue  []*call
	busy   int             // workers that have calls under way
	idle   []chan struct{} // workers that wait for calls; each has a channel of its own
	late   *time.Timer     // starts another worker when the busy ones take long
	closed bool

	workers sync.WaitGroup
}

const (
	// steadyWorkers is how many pipelines are under way when all is well: while
	// one is at the server the next is written. More of them mean shorter
	// pipelines.
	steadyWorkers = 2
	// maxWorkers limits the pipelines when the server, or a connection, is slow.
	maxWorkers = 16
	// patience is how long calls are collected while the steady workers are busy.
	patience = time.Millisecond
	// maxPipeline limits the calls that go out together.
	maxPipeline = 256
)

// call is one or several commands that go out in order on one connection.
type call struct {
	commands []redis.Cmder
	done     chan struct{}
}

// command is never repeated by the client: whether that is safe, this package
// decides.
type command struct{ *redis.Cmd }

// NoRetry tells the client so.
func (command) NoRetry() bool { return true }

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client}
	s.late = time.AfterFunc(time.Hour, s.hurry)
	s.late.Stop()
	return s
}

// do runs commands in order on one connection. Their own errors are in them; its
// error is that of a caller who left before the outcome was known.
func (s *sender) do(ctx context.Context, commands ...redis.Cmder) error {
	c := calls.Get().(*call)
	c.commands = append(c.commands[:0], commands...)
	if err := s.submit(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		clear(c.commands)
		calls.Put(c)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx) // the call is left to its worker
	}
}

func (s *sender) submit(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.queue = append(s.queue, c)
	switch {
	case s.busy < steadyWorkers:
		s.startLocked()
	case len(s.queue) == 1 && s.busy < maxWorkers:
		s.late.Reset(patience)
	}
	return nil
}

// hurry starts another worker for calls that the busy ones keep waiting.
func (s *sender) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.busy < maxWorkers && !s.closed {
		s.startLocked()
	}
}

// startLocked gives the queue to a worker.
func (s *sender) startLocked() {
	s.busy++
	if n := len(s.idle); n > 0 {
		wake := s.idle[n-1]
		s.idle = s.idle[:n-1]
		wake <- struct{}{}
		return
	}
	s.workers.Add(1)
	go s.work()
}

func (s *sender) work() {
	defer s.workers.Done()
	wake := make(chan struct{}, 1)
	var batch []*call
	var commands []redis.Cmder
	for {
		s.mu.Lock()
		batch = s.takeLocked(batch[:0])
		if len(batch) == 0 {
			s.busy--
			if s.closed || len(s.idle) >= steadyWorkers {
				s.mu.Unlock()
				return
			}
			s.idle = append(s.idle, wake)
			s.mu.Unlock()
			if _, ok := <-wake; !ok {
				return
			}
			continue
		}
		s.mu.Unlock()
		commands = s.exec(batch, commands[:0])
		clear(batch)
		clear(commands)
	}
}

func (s *sender) takeLocked(batch []*call) []*call {
	n := min(len(s.queue), maxPipeline)
	batch = append(batch, s.queue[:n]...)
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// exec runs the calls of a batch in one pipeline.
func (s *sender) exec(batch []*call, commands []redis.Cmder) []redis.Cmder {
	for _, c := range batch {
		commands = append(commands, c.commands...)
	}
	ctx := context.Background()
	if len(commands) == 1 {
		_ = s.client.Process(ctx, commands[0]) // the error is in the command
	} else {
		pipe := s.client.Pipeline()
		for _, cmd := range commands {
			_ = pipe.Process(ctx, cmd) // only queues it
		}
		_, _ = pipe.Exec(ctx) // the errors are in the commands
	}
	for _, c := range batch {
		c.done <- struct{}{}
	}
	return commands
}

// close waits for the calls that are under way.
func (s *sender) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.late.Stop()
		for _, wake := range s.idle {
			close(wake)
		}
		s.idle = nil
	}
	s.mu.Unlock()
	s.workers.Wait()
}
