package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/redis/go-redis/v9"
)

// subscriptions shares one pub/sub connection among all listeners. It opens the connection for the
// first listener and closes it some time after the last.
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

// subscription is a channel with its listeners.
type subscription struct {
	listeners []*listener   // may be empty for a while: see linger
	answered  chan struct{} // closed when the server has confirmed or refused the first request
	confirmed bool          // at least once
	err       error         // why it was not confirmed
	active    bool          // confirmed on the present connection
	idleSince time.Time     // when the last listener was stopped
}

const (
	// linger is how long a channel stays subscribed after its last listener was stopped: under
	// contention the next listener comes at once.
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

// listener receives the messages of one channel for one watch.
type listener struct {
	subs    *subscriptions
	channel string
	wake    *subscribers.Subscriber
	lost    func() // called when the subscription has ended; must not block
	alone   bool   // no other listener uses the channel, now or later
	stopped bool   // guarded by the mutex of subs
}

// newListener returns a listener that also calls wake if its subscription ends.
func newListener(subs *subscriptions, channel string, wake func(), alone bool) *listener {
	w := subscribers.New(wake)
	return &listener{subs: subs, channel: channel, wake: w, lost: w.Notify, alone: alone}
}

// start subscribes, and returns when the server has confirmed that. It does nothing if the listener
// was stopped before.
func (l *listener) start(ctx context.Context) error {
	s := l.subs
	s.mu.Lock()
	if s.ctx.Err() != nil || l.stopped {
		s.mu.Unlock()
		return context.Cause(s.ctx)
	}
	sub := s.byChannel[l.channel]
	if sub == nil {
		sub = &subscription{answered: make(chan struct{})}
		s.byChannel[l.channel] = sub
		s.requestLocked(request{s.subscribe, l.channel, sub})
	}
	sub.listeners = append(sub.listeners, l)
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
	l.stop()
	return context.Cause(ctx)
}

// stop ends the notifications. None is under way when it returns.
func (l *listener) stop() {
	l.wake.Stop()
	s := l.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	l.stopped = true
	sub := s.byChannel[l.channel]
	if sub == nil {
		return
	}
	sub.listeners = slices.DeleteFunc(sub.listeners, func(other *listener) bool { return other == l })
	switch {
	case len(sub.listeners) > 0:
	case l.alone:
		s.unsubscribeLocked(l.channel)
	default:
		sub.idleSince = time.Now()
	}
}

func (s *subscriptions) requestLocked(r request) {
	s.requests = append(s.requests, r)
	select {
	case s.requested <- struct{}{}:
	default:
	}
}

// unsubscribeLocked leaves the channel. Requests go out in order: a listener that comes for the
// channel later subscribes again, after that.
func (s *subscriptions) unsubscribeLocked(channel string) {
	delete(s.byChannel, channel)
	s.requestLocked(request{command: s.unsubscribe, channel: channel})
}

// unsubscribeIdleLocked leaves channels that had no listener for a while, and reports whether no
// channel remains.
func (s *subscriptions) unsubscribeIdleLocked() (empty bool) {
	lingering := 0
	for channel, sub := range s.byChannel {
		if len(sub.listeners) > 0 {
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

func (sub *subscription) notifyLocked() {
	for _, l := range sub.listeners {
		l.wake.Notify()
	}
}

// confirmLocked records that the server has confirmed sub. After an earlier connection it wakes the
// listeners, because they may have missed messages.
func (sub *subscription) confirmLocked() {
	sub.active = true
	if sub.confirmed {
		sub.notifyLocked()
		return
	}
	sub.confirmed = true
	close(sub.answered)
}

// endLocked ends a subscription. If it was never confirmed, start returns err. Otherwise its
// listeners have lost it.
func (s *subscriptions) endLocked(channel string, sub *subscription, err error) {
	if s.byChannel[channel] == sub {
		delete(s.byChannel, channel)
	}
	if !sub.confirmed {
		sub.err = err
		close(sub.answered)
		return
	}
	for _, l := range sub.listeners {
		l.lost()
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
