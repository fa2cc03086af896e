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
	open    func(ctx context.Context) *redis.PubSub
	sharded bool
	ctx     context.Context // ends when the subscriptions are closed
	cancel  context.CancelCauseFunc

	mu        sync.Mutex
	byChannel map[string]*subscription
	requests  []request     // not sent yet
	requested chan struct{} // there are requests
	running   bool

	loop sync.WaitGroup
}

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

func newSubscriptions(open func(context.Context) *redis.PubSub, sharded bool) *subscriptions {
	s := &subscriptions{open: open, sharded: sharded, byChannel: make(map[string]*subscription), requested: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// add subscribes w, and returns when the server has confirmed that.
func (s *subscriptions) add(ctx context.Context, channel string, w *waiter) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return context.Cause(s.ctx)
	}
	sub := s.byChannel[channel]
	if sub == nil {
		sub = &subscription{answered: make(chan struct{})}
		s.byChannel[channel] = sub
		s.requestLocked(request{subscribe, channel, sub})
	}
	sub.waiters = append(sub.waiters, w)
	if !s.running {
		s.running = true
		s.loop.Go(s.run)
	}
	s.mu.Unlock()
	select {
	case <-sub.answered:
		return sub.err
	case <-ctx.Done():
		s.remove(channel, w)
		return context.Cause(ctx)
	case <-s.ctx.Done():
		s.remove(channel, w)
		return context.Cause(s.ctx)
	}
}

// remove ends the notifications of w. None is under way when it returns.
func (s *subscriptions) remove(channel string, w *waiter) {
	w.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.byChannel[channel]
	if sub == nil {
		return
	}
	if i := slices.Index(sub.waiters, w); i >= 0 {
		sub.waiters = slices.Delete(sub.waiters, i, i+1)
	}
	switch {
	case len(sub.waiters) > 0:
	case w.alone:
		s.unsubscribeLocked(channel)
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
	s.requestLocked(request{verb: unsubscribe, channel: channel})
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
	for {
		conn := s.connect()
		if conn == nil {
			return
		}
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

// connect prepares a connection for all channels. It returns nil if there are none.
func (s *subscriptions) connect() *pubsubConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsubscribeIdleLocked() || s.ctx.Err() != nil {
		s.running = false
		return nil
	}
	s.requests = nil // of the previous connection
	for channel, sub := range s.byChannel {
		s.requestLocked(request{subscribe, channel, sub})
	}
	return newPubsubConn(s)
}

// notify wakes the waiters of a channel.
func (s *subscriptions) notify(channel string) {
	s.mu.Lock()
	var woken []*waiter
	if sub := s.byChannel[channel]; sub != nil {
		woken = slices.Clone(sub.waiters)
	}
	s.mu.Unlock()
	for _, w := range woken {
		w.wake.Notify()
	}
}

// confirmed takes the server's confirmation, and reports whether it follows a reconnection.
func (s *subscriptions) confirmed(sub *subscription) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.active = true
	if sub.confirmed {
		return true
	}
	sub.confirmed = true
	close(sub.answered)
	return false
}

// ended takes the server's refusal of a request for sub. If sub is nil, the server has ended the
// channel's subscription by itself, as it does when the channel has moved to another server.
func (s *subscriptions) ended(channel string, sub *subscription, err error) {
	s.mu.Lock()
	if active := s.byChannel[channel]; sub == nil && active != nil && active.active {
		sub = active
	}
	var lost []*waiter
	if sub != nil {
		lost = s.endLocked(channel, sub, err)
	}
	s.mu.Unlock()
	loseAll(lost)
}

// endLocked ends a subscription. If it was never confirmed, add returns err. Otherwise endLocked
// returns the waiters that have lost it.
func (s *subscriptions) endLocked(channel string, sub *subscription, err error) (lost []*waiter) {
	if s.byChannel[channel] == sub {
		delete(s.byChannel, channel)
	}
	if sub.confirmed {
		return slices.Clone(sub.waiters)
	}
	sub.err = err
	close(sub.answered)
	return nil
}

// disconnected cleans up after a connection, and reports whether another one is needed. A sharded
// subscription ends, because the channel may have moved. Callers that still subscribe get err.
func (s *subscriptions) disconnected(err error) (again bool) {
	s.mu.Lock()
	var lost []*waiter
	for channel, sub := range s.byChannel {
		sub.active = false
		if sub.confirmed && s.sharded || !sub.confirmed && !errors.Is(err, errIdle) {
			lost = append(lost, s.endLocked(channel, sub, err)...)
		}
	}
	again = len(s.byChannel) > 0 && s.ctx.Err() == nil
	if !again {
		s.running = false
	}
	s.mu.Unlock()
	loseAll(lost)
	return again
}

// close ends the connection without waiting. Callers that still subscribe get the cause.
func (s *subscriptions) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(cause)
}

func loseAll(waiters []*waiter) {
	for _, w := range waiters {
		w.lost.Notify()
	}
}
