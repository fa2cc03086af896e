package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/workerpool"
	"github.com/redis/go-redis/v9"
)

// sender sends calls to the server. A call that arrives alone goes out at once, in its caller's
// goroutine. Calls that arrive while others are under way are collected and go out in one
// pipeline, because many small requests cost the server and the client more than a large one. The
// first caller among them sends the pipeline for all.
//
// A caller can leave when its context ends, but not while it sends: then only the client's own
// timeouts end the call. So a caller sends only while the server answers promptly and if it has
// the time. Otherwise a worker sends.
type sender struct {
	route          *route
	client         redis.UniversalClient
	timedClient    redis.UniversalClient // the client; one for one server without a ReadTimeout has answerLimit
	addr           string                // of a cluster's server
	readTimeout    time.Duration         // how long the client waits for an answer; zero and less is for ever
	keepsDeadlines bool                  // the client does not wait beyond the deadline of a context
	replicas       int                   // how many have to acknowledge each pipeline

	mu             sync.Mutex
	queue          []*call
	underway       [][]*call   // pipelines of several calls
	sending        int         // pipelines under way, including those of one call
	lastAnswer     time.Time   // when the server last answered; zero after a failure
	failure        error       // why the server did not answer the last pipeline
	overdueTimer   *time.Timer // sends the queue if the pipelines under way take long
	cancelTimer    *time.Timer // cancels calls whose context has ended
	cancelTimerSet bool        // cancelTimer is set
	closed         error       // why no further call is let in; nil before

	workers *workerpool.Pool
	sharded func() *subscriptions // to the sharded channels of the server

	// calls to use again. They stay with their sender: cancelEnded reads calls that may have
	// ended by then, with mu held.
	calls sync.Pool
}

const (
	batchDelay   = time.Millisecond // how long calls are collected while others are under way
	manyCalls    = 16               // calls in the queue that are worth a second pipeline
	maxSending   = 16               // pipelines under way, if the server or a connection is slow
	maxPipeline  = 256              // calls in one pipeline
	promptWindow = time.Second      // how long after an answer the server is expected to answer promptly
	maxIdle      = 4                // workers that wait for something to send

	// answerLimit is how long a call waits for its answer if the client has no ReadTimeout.
	// Without it, maxSending dead connections would stop all calls for ever.
	answerLimit = 3 * time.Second
)

// call is one or several commands that go out in order on one connection.
type call struct {
	ctx           context.Context
	commands      []redis.Cmder
	ackErr        error          // of WAIT: ErrNotReplicated or ErrUnreachable; nil if enough replicas have the write
	hasTimeToSend bool           // its caller can send
	notify        chan callState // what the caller of a queued call waits for

	// guarded by the sender's mutex
	state    callState
	serial   uint64                // a new one for each use
	onEnd    []func(answered bool) // of an abandoned call
	answered bool                  // by the server; for an abandoned call that has ended
}

type callState int

const (
	queued callState = iota
	sent
	leading   // its caller sends the queue, with this call at the head
	ended     // the commands have their results
	notSent   // the context ended before the call was sent
	abandoned // the context ended after that
)

// become changes the state of a call, and notifies its caller.
func (c *call) become(state callState) {
	c.state = state
	c.notify <- state
}

func newSender(r *route, client redis.UniversalClient) *sender {
	s := &sender{route: r, client: client, timedClient: client, readTimeout: -1, replicas: r.replicas, workers: workerpool.New(maxIdle)}
	switch c := client.(type) {
	case *redis.Client:
		s.readTimeout, s.keepsDeadlines = c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
		if c.Options().ReadTimeout <= 0 {
			s.timedClient = c.WithTimeout(answerLimit + r.ackTimeout) // shares the connections of c
		}
	case *redis.ClusterClient:
		s.readTimeout, s.keepsDeadlines = c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
	}
	s.sharded = sync.OnceValue(func() *subscriptions { return newSubscriptions(r.tasks, client.SSubscribe, true) })
	s.calls.New = func() any { return &call{notify: make(chan callState, 1)} }
	s.overdueTimer, s.cancelTimer = time.AfterFunc(time.Hour, s.sendOverdue), time.AfterFunc(time.Hour, s.cancelEnded)
	s.overdueTimer.Stop()
	s.cancelTimer.Stop()
	return s
}

// do runs commands in order on one connection. The commands contain their own errors. The error of
// do is the cause of a context that ended before the outcome was known, or that of WAIT or close.
func (s *sender) do(ctx context.Context, commands ...redis.Cmder) error {
	hasTimeToSend := s.hasTimeToSend(ctx)
	s.mu.Lock()
	if err := s.closed; err != nil {
		s.mu.Unlock()
		return err
	}
	if s.sending == 0 && (hasTimeToSend || s.keepsDeadlines) && s.promptLocked() {
		s.countPipelineLocked()
		s.mu.Unlock()
		return s.sendAlone(ctx, hasTimeToSend, commands)
	}
	c := s.calls.Get().(*call)
	c.ctx, c.commands, c.hasTimeToSend, c.state = ctx, append(c.commands[:0], commands...), hasTimeToSend, queued
	c.serial++
	switch {
	case s.sending == 0:
		s.queue = append(s.queue, c)
		s.sendLocked()
	case s.sending == 1 && len(s.queue) >= manyCalls && hasTimeToSend && s.promptLocked():
		// Client and server work at the same time: this caller sends the queue while the
		// first pipeline is under way.
		s.countPipelineLocked()
		c.become(leading)
	default:
		s.queue = append(s.queue, c)
		if len(s.queue) == 1 {
			s.setOverdueTimerLocked()
		}
	}
	s.setCancelTimerLocked()
	s.mu.Unlock()
	return s.wait(c)
}

// countPipelineLocked counts a pipeline under way. Close waits until all are uncounted.
func (s *sender) countPipelineLocked() {
	s.sending++
	s.route.tasks.running.Add(1)
}

func (s *sender) uncountPipelineLocked() {
	s.sending--
	s.stopTimersLocked()
	s.route.tasks.running.Done()
}

// stopTimersLocked stops the timers of a closed sender when its last call has ended.
func (s *sender) stopTimersLocked() {
	if s.closed != nil && s.sending == 0 {
		s.overdueTimer.Stop()
		s.cancelTimer.Stop()
	}
}

// sendAlone sends a call in its caller's goroutine.
func (s *sender) sendAlone(ctx context.Context, hasTimeToSend bool, commands []redis.Cmder) error {
	sending, end := sendingContext(ctx, hasTimeToSend)
	failure, ackErr := s.send(sending, commands)
	ackErr = ackErrUnlessUnanswered(commands, ackErr)
	end()
	s.finish(nil, failure)
	if cause := deadline.Passed(ctx); failure != nil && cause != nil {
		return &abandonedError{cause: cause, failure: failure, notSent: !mayBeCarriedOut(commands)}
	}
	return ackErr
}

// hasTimeToSend reports whether the caller can send by itself. Then it cannot leave before the
// client's ReadTimeout, so its own deadline has to be about as late.
func (s *sender) hasTimeToSend(ctx context.Context) bool {
	at, limited := ctx.Deadline()
	return !limited || s.readTimeout > 0 && time.Until(at) > s.readTimeout-s.readTimeout/4
}

func (s *sender) promptLocked() bool { return time.Since(s.lastAnswer) <= promptWindow }

// wait blocks until a queued call or its context has ended. If it is the caller's turn to send,
// wait sends the queue.
func (s *sender) wait(c *call) error {
	switch state := <-c.notify; state {
	case notSent, abandoned:
		return s.abandonedErr(c.ctx, state == notSent, c)
	case leading: // sends the queue behind c
		s.mu.Lock()
		s.queue = slices.Insert(s.queue, 0, c)
		batch := s.takeLocked()
		c.state = ended // it needs no notification
		s.mu.Unlock()
		s.finish(batch, s.sendBatch(batch))
	default: // ended
	}
	ackErr := c.ackErr
	clear(c.commands)
	c.ctx, c.ackErr = nil, nil
	s.calls.Put(c)
	return ackErr
}

func (s *sender) takeLocked() []*call {
	n := min(len(s.queue), maxPipeline)
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	for _, c := range batch {
		c.state = sent
	}
	s.underway = append(s.underway, batch)
	s.setOverdueTimerLocked() // for the rest of the queue
	return batch
}

// finish ends a pipeline, and lets the next one begin.
func (s *sender) finish(batch []*call, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordOutcomeLocked(batch, failure)
	switch {
	case len(s.queue) == 0 || s.sending > 1:
		s.uncountPipelineLocked()
		s.setOverdueTimerLocked()
	case !s.queue[0].hasTimeToSend || !s.promptLocked():
		s.sendLocked()
		s.uncountPipelineLocked()
	default: // the next caller sends
		next := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		next.become(leading)
	}
}

// recordOutcomeLocked records the outcome of a pipeline. batch is nil for a call that went alone.
func (s *sender) recordOutcomeLocked(batch []*call, failure error) {
	s.failure, s.lastAnswer = failure, time.Time{}
	if failure == nil {
		s.lastAnswer = time.Now()
	}
	if batch == nil {
		return
	}
	s.underway = slices.DeleteFunc(s.underway, func(other []*call) bool { return &other[0] == &batch[0] })
	for _, c := range batch {
		switch c.state {
		case sent:
			c.become(ended)
		case abandoned:
			c.state, c.answered = ended, !mayBeCarriedOut(c.commands)
			for _, f := range c.onEnd {
				f(c.answered)
			}
		default:
		}
	}
}

// sendLocked lets a worker send the queue.
func (s *sender) sendLocked() {
	s.countPipelineLocked()
	batch := s.takeLocked()
	s.workers.Go(func() { s.finish(batch, s.sendBatch(batch)) })
}

// setOverdueTimerLocked makes sure that no call waits long behind pipelines that are stuck.
func (s *sender) setOverdueTimerLocked() {
	if len(s.queue) > 0 && s.sending < maxSending {
		s.overdueTimer.Reset(batchDelay)
	}
}

// sendOverdue sends the queue although pipelines are under way.
func (s *sender) sendOverdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.sending < maxSending {
		s.sendLocked()
	}
}

// close lets no further call in, and ends subscriptions. Both get the cause. It does not wait.
func (s *sender) close(cause error) {
	s.mu.Lock()
	s.closed = cause
	s.stopTimersLocked()
	s.mu.Unlock()
	s.workers.Close()
	s.sharded().close(cause)
}
