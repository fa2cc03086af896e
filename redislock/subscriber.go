package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// subscriber shares one connection for messages among all who wait. It opens it
// for the first and closes it some time after the last.
type subscriber struct {
	open    func(ctx context.Context) *redis.PubSub
	sharded bool

	mu       sync.Mutex
	channels map[string]*channel
	pubsub   *redis.PubSub // nil while there is no connection
	running  bool
	closed   bool
	ending   chan struct{}

	loop sync.WaitGroup
}

// channel is one subscription.
type channel struct {
	watchers  map[*watcher]struct{}
	confirmed chan struct{} // closed when the server has confirmed it, for the first time
	failed    chan struct{} // closed when it will not
	err       error         // why not
	active    bool          // confirmed on the present connection
	since     time.Time     // when the last watcher left
}

// watcher is one who waits for messages.
type watcher struct {
	wake func()
	lost func() // called instead, in a sharded subscription, when it has ended; may be nil

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

const (
	// linger is how long a channel stays subscribed after the last watcher has
	// left: under contention the next one comes at once.
	linger = 2 * time.Second
	// heartbeat is how long a connection may be silent before it is tested.
	heartbeat = 2 * time.Second
	// maxLingering limits the channels that linger.
	maxLingering = 1024

	subscribeTimeout = 5 * time.Second
	minReconnect     = 10 * time.Millisecond
	maxReconnect     = time.Second
)

func newSubscriber(open func(context.Context) *redis.PubSub, sharded bool) *subscriber {
	return &subscriber{open: open, sharded: sharded, channels: make(map[string]*channel), ending: make(chan struct{})}
}

// add subscribes w and returns when the server has confirmed that.
func (s *subscriber) add(ctx context.Context, name string, w *watcher) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return driver.ErrClosed
	}
	ch := s.channels[name]
	fresh := ch == nil
	if fresh {
		ch = &channel{watchers: make(map[*watcher]struct{}), confirmed: make(chan struct{}), failed: make(chan struct{})}
		s.channels[name] = ch
	}
	ch.watchers[w] = struct{}{}
	pubsub := s.pubsub
	if !s.running {
		s.running = true
		s.loop.Go(s.run) // subscribes to all channels
	}
	s.mu.Unlock()
	if fresh && pubsub != nil {
		s.subscribe(pubsub, name)
	}
	select {
	case <-ch.confirmed:
		return nil
	case <-ch.failed:
		return ch.err
	case <-ctx.Done():
		s.remove(name, w)
		return context.Cause(ctx)
	case <-s.ending:
		s.remove(name, w)
		return driver.ErrClosed
	}
}

// subscribe asks the server. If that fails the connection is lost, and the loop
// notices.
func (s *subscriber) subscribe(pubsub *redis.PubSub, names ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	if !s.sharded {
		_ = pubsub.Subscribe(ctx, names...)
		return
	}
	for _, name := range names { // one command cannot name channels of different slots
		_ = pubsub.SSubscribe(ctx, name)
	}
}

// unsubscribe is the reverse.
func (s *subscriber) unsubscribe(pubsub *redis.PubSub, names ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	if !s.sharded {
		_ = pubsub.Unsubscribe(ctx, names...)
		return
	}
	for _, name := range names {
		_ = pubsub.SUnsubscribe(ctx, name)
	}
}

// remove ends a subscription: w is not called any more when it returns.
func (s *subscriber) remove(name string, w *watcher) {
	w.silence()
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[name]
	if ch == nil {
		return
	}
	delete(ch.watchers, w)
	if len(ch.watchers) == 0 {
		ch.since = time.Now()
	}
}

// run keeps the connection while there are channels.
func (s *subscriber) run() {
	delay := minReconnect
	for {
		pubsub, names := s.connect()
		if pubsub == nil {
			return
		}
		began := time.Now()
		s.subscribe(pubsub, names...)
		if !s.disconnected(pubsub, s.receive(pubsub)) {
			return
		}
		if time.Since(began) > heartbeat {
			delay = minReconnect
		}
		select {
		case <-time.After(delay):
		case <-s.ending:
		}
		delay = min(2*delay, maxReconnect)
	}
}

// connect prepares a connection for all channels, or ends the loop if there are
// none.
func (s *subscriber) connect() (pubsub *redis.PubSub, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	for name := range s.channels {
		names = append(names, name)
	}
	if len(names) == 0 || s.closed {
		s.running = false
		return nil, nil
	}
	s.pubsub = s.open(context.Background())
	return s.pubsub, names
}

// forgetLocked drops channels that nobody has waited for in a while.
func (s *subscriber) forgetLocked() (names []string) {
	lingering := 0
	for name, ch := range s.channels {
		if len(ch.watchers) > 0 {
			continue
		}
		if lingering++; time.Since(ch.since) > linger || lingering > maxLingering {
			delete(s.channels, name)
			names = append(names, name)
		}
	}
	return names
}

// receive hands on messages until the connection is lost, and returns why, or
// until nobody needs it.
func (s *subscriber) receive(pubsub *redis.PubSub) error {
	ctx := context.Background()
	tested := false
	for {
		message, err := pubsub.ReceiveTimeout(ctx, heartbeat)
		switch m := message.(type) {
		case *redis.Message:
			s.tell(m.Channel)
		case *redis.Subscription:
			if !s.heard(m) {
				return errMoved
			}
		}
		switch {
		case err == nil:
			tested = false
		case !isTimeout(err) || tested:
			return err
		default:
			if s.tidy(pubsub) {
				return nil
			}
			tested = true
			if err := pubsub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

// tidy unsubscribes from what nobody needs, and says whether nothing is left.
func (s *subscriber) tidy(pubsub *redis.PubSub) (empty bool) {
	s.mu.Lock()
	names := s.forgetLocked()
	empty = len(s.channels) == 0
	s.mu.Unlock()
	if len(names) == 0 || empty {
		return empty
	}
	s.unsubscribe(pubsub, names...)
	// Somebody may have come in between, whose subscription was undone.
	s.mu.Lock()
	var again []string
	for _, name := range names {
		if s.channels[name] != nil {
			again = append(again, name)
		}
	}
	s.mu.Unlock()
	if len(again) > 0 {
		s.subscribe(pubsub, again...)
	}
	return false
}

// tell wakes who waits for a channel.
func (s *subscriber) tell(name string) {
	s.mu.Lock()
	var woken []*watcher
	if ch := s.channels[name]; ch != nil {
		for w := range ch.watchers {
			woken = append(woken, w)
		}
	}
	s.mu.Unlock()
	for _, w := range woken {
		w.call(w.wake)
	}
}

// heard takes the server's confirmation. It says no when the server has ended a
// subscription by itself, as it does when the channel moved to another one.
func (s *subscriber) heard(m *redis.Subscription) bool {
	s.mu.Lock()
	ch := s.channels[m.Channel]
	again := false
	switch {
	case m.Kind == "subscribe" || m.Kind == "ssubscribe":
		if ch != nil && !ch.active {
			ch.active = true
			again = isClosed(ch.confirmed)
			if !again {
				close(ch.confirmed)
			}
		}
	case s.sharded && ch != nil && ch.active:
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	if again { // after a reconnection: messages may have been missed
		s.tell(m.Channel)
	}
	return true
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errMoved: the server has ended a subscription, because another one has the
// channel now.
var errMoved = errors.New("the channel has moved to another server")

// disconnected cleans up after a connection. It says whether to open another.
func (s *subscriber) disconnected(pubsub *redis.PubSub, err error) bool {
	s.mu.Lock()
	s.pubsub = nil
	var lost []*watcher
	for name, ch := range s.channels {
		ch.active = false
		switch {
		case !isClosed(ch.confirmed) && err != nil: // those who subscribe do without
			delete(s.channels, name)
			ch.err = err
			close(ch.failed)
		case isClosed(ch.confirmed) && s.sharded: // where it is now, others find out
			delete(s.channels, name)
			for w := range ch.watchers {
				lost = append(lost, w)
			}
		}
	}
	again := len(s.channels) > 0 && !s.closed
	if !again {
		s.running = false
	}
	s.mu.Unlock()
	_ = pubsub.Close()
	for _, w := range lost {
		w.call(w.lost)
	}
	return again
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func (s *subscriber) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ending)
	}
	pubsub := s.pubsub
	s.mu.Unlock()
	if pubsub != nil {
		_ = pubsub.Close() // ends the receiving
	}
	s.loop.Wait()
}
