package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriber shares one connection for messages among all who wait. It opens it
// for the first and closes it some time after the last.
//
// Nobody but the goroutines of the connection talks to the server: those who
// come and go leave a request, and never wait for longer than they want.
type subscriber struct {
	open    func(ctx context.Context) *redis.PubSub
	sharded bool
	ctx     context.Context // done when it is closed
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	channels map[string]*channel
	requests []request     // not sent yet
	asked    chan struct{} // there are some
	running  bool

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

const (
	// linger is how long a channel stays subscribed after the last watcher has
	// left: under contention the next one comes at once.
	linger = 2 * time.Second
	// heartbeat is how often a connection is tested and tidied.
	heartbeat = 2 * time.Second
	// maxLingering limits the channels that linger.
	maxLingering = 1024

	subscribeTimeout = 5 * time.Second
	minReconnect     = 10 * time.Millisecond
	maxReconnect     = time.Second
)

func newSubscriber(open func(context.Context) *redis.PubSub, sharded bool) *subscriber {
	s := &subscriber{open: open, sharded: sharded, channels: make(map[string]*channel), asked: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// add subscribes w and returns when the server has confirmed that.
func (s *subscriber) add(ctx context.Context, name string, w *watcher) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return context.Cause(s.ctx)
	}
	ch := s.channels[name]
	if ch == nil {
		ch = &channel{watchers: make(map[*watcher]struct{}), confirmed: make(chan struct{}), failed: make(chan struct{})}
		s.channels[name] = ch
		s.askLocked(request{subscribe, name, ch})
	}
	ch.watchers[w] = struct{}{}
	if !s.running {
		s.running = true
		s.loop.Go(s.run)
	}
	s.mu.Unlock()
	select {
	case <-ch.confirmed:
		return nil
	case <-ch.failed:
		return ch.err
	case <-ctx.Done():
		s.remove(name, w)
		return context.Cause(ctx)
	case <-s.ctx.Done():
		s.remove(name, w)
		return context.Cause(s.ctx)
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
	switch {
	case len(ch.watchers) > 0:
	case w.alone:
		s.dropLocked(name)
	default:
		ch.since = time.Now()
	}
}

// askLocked leaves a request for the connection.
func (s *subscriber) askLocked(r request) {
	s.requests = append(s.requests, r)
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// dropLocked unsubscribes. Requests go out in order: whoever comes for the same
// channel later subscribes again, after that.
func (s *subscriber) dropLocked(name string) {
	delete(s.channels, name)
	s.askLocked(request{verb: unsubscribe, name: name})
}

// tidy unsubscribes from what nobody has waited for in a while, and says whether
// nothing is left.
func (s *subscriber) tidy() (empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tidyLocked()
}

func (s *subscriber) tidyLocked() (empty bool) {
	lingering := 0
	for name, ch := range s.channels {
		if len(ch.watchers) > 0 {
			continue
		}
		if lingering++; time.Since(ch.since) > linger || lingering > maxLingering {
			s.dropLocked(name)
		}
	}
	return len(s.channels) == 0
}

// run keeps the connection while there are channels.
func (s *subscriber) run() {
	delay := minReconnect
	for {
		l := s.connect()
		if l == nil {
			return
		}
		began := time.Now()
		if !s.disconnected(l.serve()) {
			return
		}
		if time.Since(began) > heartbeat {
			delay = minReconnect
		}
		select {
		case <-time.After(delay):
		case <-s.ctx.Done():
		}
		delay = min(2*delay, maxReconnect)
	}
}

// connect prepares a connection for all channels, or ends the loop if there are
// none.
func (s *subscriber) connect() *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tidyLocked() || s.ctx.Err() != nil {
		s.running = false
		return nil
	}
	s.requests = nil // they were for the connection before
	for name, ch := range s.channels {
		s.askLocked(request{subscribe, name, ch})
	}
	return newLine(s)
}

// tell wakes who waits for a channel.
func (s *subscriber) tell(name string) {
	s.mu.Lock()
	var woken []*watcher
	if ch := s.channels[name]; ch != nil {
		woken = ch.listLocked()
	}
	s.mu.Unlock()
	wakeAll(woken)
}

func (ch *channel) listLocked() []*watcher {
	list := make([]*watcher, 0, len(ch.watchers))
	for w := range ch.watchers {
		list = append(list, w)
	}
	return list
}

func wakeAll(list []*watcher) {
	for _, w := range list {
		w.call(w.wake)
	}
}

// confirmed takes the server's confirmation.
func (s *subscriber) confirmed(ch *channel) {
	s.mu.Lock()
	ch.active = true
	var woken []*watcher
	if isClosed(ch.confirmed) { // after a reconnection: messages may have been missed
		woken = ch.listLocked()
	} else {
		close(ch.confirmed)
	}
	s.mu.Unlock()
	wakeAll(woken)
}

// refused takes the server's refusal. Those who were subscribed before are on
// their own from now on.
func (s *subscriber) refused(name string, ch *channel, err error) {
	s.mu.Lock()
	if s.channels[name] == ch {
		delete(s.channels, name)
	}
	var lost []*watcher
	if isClosed(ch.confirmed) {
		lost = ch.listLocked()
	} else {
		ch.err = err
		close(ch.failed)
	}
	s.mu.Unlock()
	s.lose(lost)
}

// ended takes note that the server has ended a subscription by itself, as it does
// when the channel has moved to another one.
func (s *subscriber) ended(name string) {
	s.mu.Lock()
	var lost []*watcher
	if ch := s.channels[name]; ch != nil && ch.active {
		delete(s.channels, name)
		lost = ch.listLocked()
	}
	s.mu.Unlock()
	s.lose(lost)
}

// lose tells watchers that their subscription has ended.
func (*subscriber) lose(list []*watcher) {
	for _, w := range list {
		if w.lost == nil {
			w.call(w.wake)
			continue
		}
		w.call(w.lost)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// disconnected cleans up after a connection. It says whether to open another.
func (s *subscriber) disconnected(err error) bool {
	s.mu.Lock()
	var lost []*watcher
	for name, ch := range s.channels {
		ch.active = false
		switch {
		case !isClosed(ch.confirmed) && !errors.Is(err, errUnneeded): // those who subscribe do without
			delete(s.channels, name)
			ch.err = err
			close(ch.failed)
		case isClosed(ch.confirmed) && s.sharded: // where it is now, others find out
			delete(s.channels, name)
			lost = append(lost, ch.listLocked()...)
		}
	}
	again := len(s.channels) > 0 && s.ctx.Err() == nil
	if !again {
		s.running = false
	}
	s.mu.Unlock()
	s.lose(lost)
	return again
}

// close ends the connection. Those who still subscribe get the cause. It does not
// wait; that does s.loop.
func (s *subscriber) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel(cause)
}
