package redislock

import (
	"context"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// Watch subscribes to the releases of the name. A fair waiter is also notified when it moves to the
// head of the queue. In a cluster Watch also subscribes to the sharded channel of the same name:
// depending on its version, Redisson publishes to all servers or to the sharded channel.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	w := &watch{store: s, name: req.Name, wake: subscribers.New(wake)}
	channels := []string{s.channelOf(s.keyOf(req.Name))}
	if req.Fair {
		channels = append(channels, channels[0]+":"+placeOf(&req))
	}
	javaRW := s.watches.add(w)
	for i, channel := range channels {
		if err == nil {
			err = w.subscribe(ctx, channel, i > 0)
		}
	}
	if javaRW && err == nil {
		_ = w.subscribe(ctx, javaRWChannelOf(s.keyOf(req.Name)), false) // a waiter also polls
	}
	if err != nil {
		w.stop()
		return nil, err
	}
	return w.stop, nil
}

type watch struct {
	store  *Store
	name   string
	wake   *subscribers.Subscriber
	javaRW bool // subscribes to the channel of RReadWriteLock; guarded by the mutex of javaRWWatches

	mu      sync.Mutex
	stops   []func()
	stopped bool
}

// subscribe adds a channel. If no other watch ever uses it (alone), stop unsubscribes at once.
func (w *watch) subscribe(ctx context.Context, channel string, alone bool) error {
	s := w.store
	general := newListener(s.general, channel, w.wake.Notify, alone)
	err := general.start(ctx)
	w.stopWith(general.stop)
	if err == nil && s.clustered.Load() && !s.hidesCluster() {
		sharded := &shardedWatch{route: s.route, channel: channel, wake: w.wake.Notify, alone: alone}
		if _, err = sharded.subscribe(ctx, nil); err != nil {
			s.route.reload(ctx)
		}
		w.stopWith(sharded.stop)
	}
	if err != nil {
		return fmt.Errorf("subscribing to %q: %w", channel, explain(err))
	}
	return nil
}

// stopWith makes w.stop call stop. If the watch was stopped before, it calls stop now.
func (w *watch) stopWith(stop func()) {
	w.mu.Lock()
	stopped := w.stopped
	w.stops = append(w.stops, stop)
	w.mu.Unlock()
	if stopped {
		stop()
	}
}

func (w *watch) stop() {
	w.wake.Stop()
	w.store.watches.remove(w)
	w.mu.Lock()
	w.stopped = true
	stops := w.stops
	w.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// javaRWWatches subscribes the watches of a name to the channel of Java's RReadWriteLock as soon as
// the name has had such a holder. Other watches do not need that channel, and every release of
// dlock would wake them twice.
type javaRWWatches struct {
	mu      sync.Mutex
	watches subscribers.Registry[*watch]
	names   map[string]struct{} // names that have had such a holder
}

// maxJavaRWNames limits the names that are remembered. A name that is forgotten is learned again.
const maxJavaRWNames = 1024

// add registers a watch, and reports whether it has to subscribe to the channel.
func (r *javaRWWatches) add(w *watch) (javaRW bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches.Add(w.name, w)
	_, w.javaRW = r.names[w.name]
	return w.javaRW
}

func (r *javaRWWatches) remove(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches.Remove(w.name, w)
}

// noteJavaRW records that the name has such a holder. It subscribes the present watches of the name
// to the channel, and wakes them after that.
func (r *javaRWWatches) noteJavaRW(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil || len(r.names) >= maxJavaRWNames {
		r.names = make(map[string]struct{})
	}
	r.names[name] = struct{}{}
	for _, w := range r.watches.Of(name) {
		if !w.javaRW {
			w.javaRW = true
			w.subscribeLater()
		}
	}
}

func (w *watch) subscribeLater() {
	s := w.store
	s.route.tasks.start(func() {
		ctx, cancel := context.WithTimeout(s.route.tasks.ctx, subscribeTimeout)
		defer cancel()
		_ = w.subscribe(ctx, javaRWChannelOf(s.keyOf(w.name)), false) // without it the waiter polls
		w.wake.Notify()
	})
}

// shardedWatch watches one sharded channel. If the channel moves to another server, the watch moves
// too.
type shardedWatch struct {
	route   *route
	channel string
	wake    func()
	alone   bool

	mu       sync.Mutex
	listener *listener // each subscription has a new one
	stopped  bool
}

// subscribe replaces the listener old, unless it was replaced already or the watch was stopped. It
// returns the listener that has to be replaced if it failed.
func (s *shardedWatch) subscribe(ctx context.Context, old *listener) (*listener, error) {
	server, err := s.route.senderFor(ctx, s.channel)
	if err != nil {
		return old, err
	}
	w := newListener(server.sharded(), s.channel, s.wake, s.alone)
	w.lost = func() { s.repair(w) }
	if !s.replace(old, w) {
		return old, nil
	}
	if old != nil {
		old.stop()
	}
	if err = w.start(ctx); isRefusal(err) {
		err = nil // the general subscription has to suffice
	}
	return w, err
}

func (s *shardedWatch) replace(old, w *listener) (replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != old || s.stopped {
		return false
	}
	s.listener = w
	return true
}

// repair subscribes again, until that works, after w has lost its subscription.
func (s *shardedWatch) repair(w *listener) {
	closed := s.route.tasks.ctx
	s.route.tasks.start(func() {
		for {
			ctx, cancel := context.WithTimeout(closed, subscribeTimeout)
			s.route.reload(ctx)
			var err error
			w, err = s.subscribe(ctx, w)
			cancel()
			w.wake.Notify() // messages may have been missed
			if err == nil || backoff.Sleep(closed, maxReconnect) != nil {
				return
			}
		}
	})
}

func (s *shardedWatch) stop() {
	s.mu.Lock()
	w := s.listener
	s.stopped = true
	s.mu.Unlock()
	if w != nil {
		w.stop()
	}
}
