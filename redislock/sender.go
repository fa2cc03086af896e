package redislock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/workerpool"
	"github.com/redis/go-redis/v9"
)

// sender takes calls to the server. A call that comes alone goes out at once, in
// its caller's goroutine. Calls that come while others are under way are
// collected and go out together, in one pipeline, because many small requests
// cost the server and the client more than one large one: whoever is first among
// them sends them all.
//
// Callers can leave when their context is done, but not while they send: then the
// client's own timeouts count. So they send only while the server answers
// promptly, and if they are in no hurry; otherwise a goroutine does that for them.
type sender struct {
	client      redis.UniversalClient
	limited     func() redis.UniversalClient // the client, with a limit to the wait for an answer
	readTimeout time.Duration
	// keepsDeadlines: the client does not wait beyond the deadline of a context.
	keepsDeadlines bool

	reload     func(context.Context) // looks for the masters of a cluster again; nil where there is none
	replicas   int                   // how many have to acknowledge each pipeline
	ackTimeout time.Duration

	mu       sync.Mutex
	queue    []*call
	underway [][]*call   // pipelines of several calls
	sending  int         // pipelines, also of one call
	last     time.Time   // when the last one went out
	answered time.Time   // when the server last answered
	late     *time.Timer // sends the queue when those under way take long
	sweeper  *time.Timer // tells callers that their context is done
	sweeping bool
	closed   bool

	running sync.WaitGroup   // pipelines under way
	workers *workerpool.Pool // who sends where no caller does

	// calls to use again. No other sender uses them: sweep looks at calls that
	// may be over by then, with mu held.
	calls sync.Pool
}

const (
	// patience is how long calls are collected while others are under way.
	patience = time.Millisecond
	// manyCalls are worth a pipeline of their own while one is under way.
	manyCalls = 16
	// maxSending limits the pipelines under way when the server, or a
	// connection, is slow.
	maxSending = 16
	// maxPipeline limits the calls that go out together.
	maxPipeline = 256
	// prompt is how long a server that has answered is expected to answer again.
	prompt = time.Second
	// maxIdle is how many goroutines wait for something to send.
	maxIdle = 4
	// sweepInterval is how late a caller may learn that its context is done.
	// Waiting for each context by itself would cost as much as the call.
	sweepInterval = 10 * time.Millisecond
)

// call is one or several commands that go out in order on one connection.
type call struct {
	ctx      context.Context
	commands []redis.Cmder
	acked    error // nil, or that too few replicas acknowledged
	patient  bool  // its caller may send
	signal   chan turn
	onItsWay bool // its caller left after it was sent

	// guarded by the sender's mutex
	state    callState
	serial   uint64              // another one each time that it is used
	ended    func(answered bool) // of an abandoned call; may be nil
	answered bool                // by the server, if an abandoned call is over
}

// turn is what the caller of a queued call is told.
type turn int

const (
	done turn = iota // the commands have their results
	lead             // send the queue, with this call at its head
	left             // the context is done
)

type callState int

const (
	queued callState = iota
	leading
	sent
	abandoned // sent, and its caller has left
	over
)

func newSender(client redis.UniversalClient) *sender {
	s := &sender{client: client, workers: workerpool.New(maxIdle)}
	s.limited = sync.OnceValue(func() redis.UniversalClient { return limited(client, answerLimit+s.ackTimeout) })
	s.readTimeout, s.keepsDeadlines = timeouts(client)
	s.calls.New = func() any { return &call{signal: make(chan turn, 1)} }
	if cluster, ok := client.(clusterClient); ok {
		s.reload = cluster.ReloadState
	}
	s.late, s.sweeper = time.AfterFunc(time.Hour, s.hurry), time.AfterFunc(time.Hour, s.sweep)
	s.late.Stop()
	s.sweeper.Stop()
	return s
}

// timeouts are how long the client waits for an answer, and so the longest that
// a caller who sends can be kept, and whether a deadline shortens that. Zero and
// less is for ever.
func timeouts(client redis.UniversalClient) (read time.Duration, keepsDeadlines bool) {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ReadTimeout, c.Options().ContextTimeoutEnabled
	default:
		return -1, false
	}
}

// answerLimit is how long a call waits for its answer if the client has no
// ReadTimeout. Without a limit, maxSending connections that died in silence would stop
// all calls for ever.
const answerLimit = 3 * time.Second

// limited returns the client with that limit if it has none. Only a client of one
// server can be given one; in a cluster every server has a client of its own.
func limited(client redis.UniversalClient, limit time.Duration) redis.UniversalClient {
	if c, ok := client.(*redis.Client); ok && c.Options().ReadTimeout <= 0 {
		return c.WithTimeout(limit) // which shares its connections
	}
	return client
}

// do runs commands in order on one connection. Their own errors are in them. Its
// error is that of a caller who left before the outcome was known, or
// ErrNotReplicated.
func (s *sender) do(ctx context.Context, commands ...redis.Cmder) error {
	patient := s.patient(ctx)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return driver.ErrClosed
	}
	if s.sending == 0 && (patient || s.keepsDeadlines) && s.promptLocked() {
		s.last = time.Now()
		s.sending++
		s.running.Add(1)
		s.mu.Unlock()
		sending, end := whileSending(ctx, patient)
		answered, acked := s.exec(sending, commands)
		end()
		s.finish(nil, answered)
		if answered {
			return acked
		}
		cause := deadline.Passed(ctx)
		if cause != nil && mayBeCarriedOut(commands) {
			return &unsettledError{cause: cause}
		}
		return cmp.Or(cause, acked)
	}
	c := s.calls.Get().(*call)
	c.ctx, c.commands, c.patient, c.state = ctx, append(c.commands[:0], commands...), patient, queued
	c.serial++
	switch {
	case s.sending == 0:
		s.queue = append(s.queue, c)
		s.sendLocked()
	case s.sending == 1 && len(s.queue) >= manyCalls && patient && s.promptLocked():
		// Client and server work at the same time: this one sends the queue
		// while the others are under way.
		s.sending++
		s.running.Add(1)
		c.state = leading
		c.signal <- lead
	default:
		s.queue = append(s.queue, c)
		if len(s.queue) == 1 {
			s.hurryLaterLocked()
		}
	}
	s.sweepLaterLocked()
	s.mu.Unlock()
	return s.wait(c)
}

// whileSending returns the context of a call that its caller sends. A patient caller
// can wait for a connection until the client's own timeout. For any other caller the
// context ends at the deadline: while the client waits for a connection, it does not
// look at the deadline itself.
func whileSending(ctx context.Context, patient bool) (sending context.Context, end func()) {
	at, limited := ctx.Deadline()
	if patient || !limited {
		return alone{context.WithoutCancel(ctx), ctx}, func() {}
	}
	short := deadline.After(context.WithoutCancel(ctx), time.Until(at))
	return short, short.End
}

// alone is the context of a call that its caller sends: it has the deadline of the
// caller's, for clients that look at it, but is not cancelled. A connection is not
// thrown away because of that.
type alone struct {
	context.Context
	caller context.Context
}

func (a alone) Deadline() (time.Time, bool) { return a.caller.Deadline() }

// patient says whether a caller can afford to send, which may keep it until the
// client's timeout: little longer than it would wait anyway.
func (s *sender) patient(ctx context.Context) bool {
	at, limited := ctx.Deadline()
	return !limited || s.readTimeout > 0 && time.Until(at) > s.readTimeout-s.readTimeout/4
}

// promptLocked says whether the server can be expected to answer at once.
func (s *sender) promptLocked() bool { return time.Since(s.answered) <= prompt }

// wait waits for the outcome of a queued call.
func (s *sender) wait(c *call) error {
	switch <-c.signal {
	case left:
		if !c.onItsWay {
			return context.Cause(c.ctx)
		}
		return &unsettledError{cause: context.Cause(c.ctx), sender: s, call: c}
	case lead:
		s.lead(c)
	case done:
	}
	acked := c.acked
	clear(c.commands)
	c.ctx, c.acked = nil, nil
	s.calls.Put(c)
	return acked
}

// lead sends the queue behind c.
func (s *sender) lead(c *call) {
	s.mu.Lock()
	batch := s.takeLocked(c)
	c.state = over // it needs no signal
	s.mu.Unlock()
	s.finish(batch, s.execAll(batch))
}

// takeLocked takes the queue, behind a first call.
func (s *sender) takeLocked(first *call) []*call {
	n := min(len(s.queue), maxPipeline-1)
	batch := make([]*call, 0, n+1)
	batch = append(append(batch, first), s.queue[:n]...)
	s.queue = slices.Delete(s.queue, 0, n)
	for _, c := range batch {
		c.state = sent
	}
	s.underway = append(s.underway, batch)
	s.last = time.Now()
	s.hurryLaterLocked() // for those who are left
	return batch
}

// finish ends a pipeline, tells the callers, and lets the next one begin.
func (s *sender) finish(batch []*call, answered bool) {
	s.mu.Lock()
	s.endLocked(batch, answered)
	s.passLocked()
	s.mu.Unlock()
}

// endLocked notes the outcome of a pipeline. A batch is nil for a call alone.
func (s *sender) endLocked(batch []*call, answered bool) {
	if answered {
		s.answered = time.Now()
	} else {
		s.answered = time.Time{}
	}
	if batch == nil {
		return
	}
	s.underway = slices.DeleteFunc(s.underway, func(other []*call) bool { return &other[0] == &batch[0] })
	for _, c := range batch {
		switch c.state {
		case sent:
			c.state = over
			c.signal <- done
		case abandoned:
			c.lateLocked()
		default:
		}
	}
}

// passLocked hands the place of a pipeline to whoever is first in the queue.
func (s *sender) passLocked() {
	switch {
	case len(s.queue) == 0 || s.sending > 1:
		s.sending--
		s.running.Done()
		s.hurryLaterLocked()
	case !s.queue[0].patient || !s.promptLocked():
		s.sendLocked()
		s.sending--
		s.running.Done()
	default:
		c := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		c.state = leading
		c.signal <- lead
	}
}

// sendLocked sends the queue from a goroutine of its own.
func (s *sender) sendLocked() {
	s.sending++
	first := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	batch := s.takeLocked(first)
	s.running.Add(1)
	s.workers.Go(func() {
		defer s.running.Done()
		answered := s.execAll(batch)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endLocked(batch, answered)
		s.sending--
		if len(s.queue) > 0 && s.sending == 0 {
			s.sendLocked()
		}
		s.hurryLaterLocked()
	})
}

// hurryLaterLocked makes sure that nobody waits for long behind pipelines that
// are stuck.
func (s *sender) hurryLaterLocked() {
	if len(s.queue) > 0 && s.sending < maxSending {
		s.late.Reset(patience)
	}
}

// hurry sends calls that those under way keep waiting.
func (s *sender) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.queue) == 0 || s.sending >= maxSending:
	case time.Since(s.last) < patience:
		s.late.Reset(patience)
	default:
		s.sendLocked()
	}
}

// closeSenders ends them, and waits for the calls that are under way. Nothing can
// interrupt one to a server which does not answer: it is left to the client's timeout.
// If that has none it ends when the client is closed.
func closeSenders(senders []*sender) {
	for _, s := range senders {
		s.shut()
	}
	ended := make(chan struct{})
	go func() {
		for _, s := range senders {
			s.running.Wait()
			s.sweeper.Stop() // not before: callers may want to leave
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

// shut lets no further calls in.
func (s *sender) shut() {
	s.mu.Lock()
	s.closed = true
	s.late.Stop()
	s.mu.Unlock()
	s.workers.Close()
}
