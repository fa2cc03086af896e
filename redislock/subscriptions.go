package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/redis/go-redis/v9"
)

// subscriptions shares one pub/sub connection among all waiters. It opens the connection for the
// first waiter and closes it some time after the last.
//
// Only the goroutines of the connection talk to the server. Callers leave requests for them, and
// can return when their context ends.
type subscriptions struct {
	tasks   *tasks
	open    openPubSub
	sharded bool
	ctx     context.Context // ends when the subscriptions are closed
	cancel  context.CancelCauseFunc

	subscribe, unsubscribe string // the commands

	mu        sync.Mutex
	byChannel map[string]*subscription
	requests  []request     // not sent yet
	requested chan struct{} // there are requests
	running   bool
}

type openPubSub func(ctx context.Context, channels ...string) *redis.PubSub

// subscription is a channel with its waiters.
type subscription struct {
	waiters   []*waiter     // may be empty for a while: see linger
	answered  chan struct{} // closed when the server has confirmed it for the first time, or failed to
	confirmed bool          // at least once
	err       error         // why it was not confirmed
	active    bool          // confirmed on the present connection
	idleSince time.Time     // when the last waiter left
}

const (
	// linger is how long a channel stays subscribed after its last waiter has left: under
	// contention the next waiter comes at once.
	linger       = 2 * time.Second
	maxLingering = 1024            // channels
	heartbeat    = 2 * time.Second // how often a connection is tested, and idle channels are left

	subscribeTimeout = 5 * time.Second
	minReconnect     = 10 * time.Millisecond
	maxReconnect     = time.Second
)

func newSubscriptions(tasks *tasks, open openPubSub, sharded bool) *subscriptions {
	s := &subscriptions{tasks: tasks, open: open, sharded: sharded, subscribe: "subscribe", unsubscribe: "unsubscribe",
		byChannel: make(map[string]*subscription), requested: make(chan struct{}, 1)}
	if sharded {
		s.subscribe, s.unsubscribe = "ssubscribe", "sunsubscribe"
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// start subscribes the waiter, and returns when the server has confirmed that. It does nothing if
// the waiter was stopped before.
func (w *waiter) start(ctx context.Context) error {
	s := w.subs
	s.mu.Lock()
	if s.ctx.Err() != nil || w.stopped {
		s.mu.Unlock()
		return context.Cause(s.ctx)
	}
	sub := s.byChannel[w.channel]
	if sub == nil {
		sub = &subscription{answered: make(chan struct{})}
		s.byChannel[w.channel] = sub
		s.requestLocked(request{s.subscribe, w.channel, sub})
	}
	sub.waiters = append(sub.waiters, w)
	if !s.running {
		s.running = s.tasks.start(s.run)
	}
	s.mu.Unlock()
	select {
	case <-sub.answered:
		return sub.err
	case <-ctx.Done():
	case <-s.ctx.Done():
		ctx = s.ctx
	}
	w.stop()
	return context.Cause(ctx)
}

// stop ends the notifications. None is under way when it returns.
func (w *waiter) stop() {
	w.wake.Stop()
	s := w.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	w.stopped = true
	sub := s.byChannel[w.channel]
	if sub == nil {
		return
	}
	sub.waiters = slices.DeleteFunc(sub.waiters, func(other *waiter) bool { return other == w })
	switch {
	case len(sub.waiters) > 0:
	case w.alone:
		s.unsubscribeLocked(w.channel)
	default:
		sub.idleSince = time.Now()
	}
}

// requestLocked leaves a request for the connection.
func (s *subscriptions) requestLocked(r request) {
	s.requests = append(s.requests, r)
	select {
	case s.requested <- struct{}{}:
	default:
	}
}

// unsubscribeLocked leaves the channel. Requests go out in order: a waiter that comes for the
// channel later subscribes again, after that.
func (s *subscriptions) unsubscribeLocked(channel string) {
	delete(s.byChannel, channel)
	s.requestLocked(request{command: s.unsubscribe, channel: channel})
}

// unsubscribeIdleLocked leaves channels that had no waiter for a while, and reports whether no
// channel remains.
func (s *subscriptions) unsubscribeIdleLocked() (empty bool) {
	lingering := 0
	for channel, sub := range s.byChannel {
		if len(sub.waiters) > 0 {
			continue
		}
		if lingering++; time.Since(sub.idleSince) > linger || lingering > maxLingering {
			s.unsubscribeLocked(channel)
		}
	}
	return len(s.byChannel) == 0
}

// run keeps the connection while there are channels.
func (s *subscriptions) run() {
	delay := backoff.Backoff{Min: minReconnect, Max: maxReconnect}
	for conn := s.connect(); conn != nil; conn = s.connect() {
		began := time.Now()
		if !s.disconnected(conn.serve()) {
			return
		}
		if time.Since(began) > heartbeat {
			delay.Reset()
		}
		_ = delay.Wait(s.ctx) // connect notices the end of s.ctx
	}
}

// connect prepares a connection for all channels. It returns nil if there is no channel.
func (s *subscriptions) connect() *pubsubConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsubscribeIdleLocked() || s.ctx.Err() != nil {
		s.running = false
		return nil
	}
	s.requests = nil // of the previous connection
	for channel, sub := range s.byChannel {
		s.requestLocked(request{s.subscribe, channel, sub})
	}
	return newPubsubConn(s)
}

// notify wakes the waiters of a channel.
func (s *subscriptions) notify(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.byChannel[channel]; sub != nil {
		sub.notifyLocked()
	}
}

func (sub *subscription) notifyLocked() {
	for _, w := range sub.waiters {
		w.wake.Notify()
	}
}

// confirmed takes the server's confirmation.
func (s *subscriptions) confirmed(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.active = true
	if sub.confirmed { // on a connection before, and messages may have been missed
		sub.notifyLocked()
		return
	}
	sub.confirmed = true
	close(sub.answered)
}

// ended takes the server's refusal of a request for sub. If sub is nil, the server has ended the
// channel's subscription by itself, as it does when the channel has moved to another server.
func (s *subscriptions) ended(channel string, sub *subscription, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if active := s.byChannel[channel]; sub == nil && active != nil && active.active {
		sub = active
	}
	if sub != nil {
		s.endLocked(channel, sub, err)
	}
}

// endLocked ends a subscription. If it was never confirmed, start returns err. Otherwise its waiters
// have lost it.
func (s *subscriptions) endLocked(channel string, sub *subscription, err error) {
	if s.byChannel[channel] == sub {
		delete(s.byChannel, channel)
	}
	if !sub.confirmed {
		sub.err = err
		close(sub.answered)
		return
	}
	for _, w := range sub.waiters {
		w.lost()
	}
}

// disconnected cleans up after a connection, and reports whether another one is needed. A sharded
// subscription ends, because the channel may have moved. Callers that still subscribe get err.
func (s *subscriptions) disconnected(err error) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, sub := range s.byChannel {
		sub.active = false
		if sub.confirmed && s.sharded || !sub.confirmed && !errors.Is(err, errIdle) {
			s.endLocked(channel, sub, err)
		}
	}
	s.running = len(s.byChannel) > 0 && s.ctx.Err() == nil
	return s.running
}

// close ends the connection without waiting. Callers that still subscribe get the cause.
func (s *subscriptions) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(cause)
}
