package etcdlock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// topic is the watch of one name's queue, which all who wait for it share. Its
// fields but opened are guarded by the mu of the store.
type topic struct {
	name   string
	cancel context.CancelFunc
	opened chan struct{} // closed when nothing is missed any more, or when it failed

	err   error // why it failed; it is not used any more then
	subs  map[*subscription]struct{}
	from  int64     // the revision after which it tells everything; zero before it is open
	seen  int64     // the revision of the last deletion
	since time.Time // without subscriptions
}

// subscription is one who waits.
type subscription struct {
	identity
	topic *topic
	queue bool // its place in the queue is given up by Release
	first bool // it has not asked since it subscribed
	wake  func()
}

// linger is how long a watch stays open that nobody needs: who wants a lock that
// was just released often has to wait for it again.
const linger = 2 * time.Second

// Watch implements driver.Watcher. Who watches waits: its next attempts keep a
// place in the queue until stop is called.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	sub := &subscription{identity: identity{req.Name, req.Owner}, queue: req.Queue, first: true, wake: wake}
	if !s.subscribe(sub) {
		return nil, driver.ErrClosed
	}
	select {
	case <-sub.topic.opened:
	case <-ctx.Done():
		s.unsubscribe(sub)
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	err = sub.topic.err
	if h := s.holds[sub.identity]; h != nil && err == nil {
		h.place.followed(sub.topic)
	}
	s.mu.Unlock()
	if err != nil {
		s.unsubscribe(sub)
		return nil, err
	}
	return func() { s.unsubscribe(sub) }, nil
}

func (s *Store) subscribe(sub *subscription) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	t := s.topics[sub.name]
	if t == nil {
		t = &topic{name: sub.name, opened: make(chan struct{}), subs: make(map[*subscription]struct{})}
		s.topics[sub.name] = t
		ctx, cancel := context.WithCancel(s.ctx)
		t.cancel = cancel
		s.work.Go(func() { s.follow(ctx, t) })
	}
	sub.topic = t
	t.subs[sub] = struct{}{}
	s.waiting[sub.identity] = sub
	if h := s.holds[sub.identity]; h != nil {
		s.keep(h)
	}
	return true
}

// unsubscribe ends a subscription. Nothing wakes it any more, because that is done
// under the same mutex.
func (s *Store) unsubscribe(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := sub.topic
	if _, ok := t.subs[sub]; !ok {
		return // stop was called twice
	}
	delete(t.subs, sub)
	if len(t.subs) == 0 {
		t.since = time.Now()
		s.lookAt(t.since.Add(linger))
	}
	if s.waiting[sub.identity] != sub {
		return
	}
	delete(s.waiting, sub.identity)
	h := s.holds[sub.identity]
	if h == nil || h.held {
		return
	}
	if h.expires.IsZero() || h.expires.Before(time.Now()) {
		h.expires = time.Now()
	}
	s.lookAt(h.expires)
	if !sub.queue {
		s.backgroundLocked(func() { s.giveUpPlace(sub.identity) })
	}
}

// closeIdle closes the watches that nobody has needed for a while. s.mu is held.
func (s *Store) closeIdle(now time.Time, next func(time.Time)) {
	for name, t := range s.topics {
		if len(t.subs) > 0 {
			continue
		}
		if until := t.since.Add(linger); now.Before(until) {
			next(until)
			continue
		}
		delete(s.topics, name)
		t.cancel()
	}
}

const (
	minReopen = 20 * time.Millisecond
	maxReopen = time.Second
)

// follow keeps the watch open until it is cancelled. The client itself resumes one
// whose connection broke, where it was. It ends when the server has no leader, so
// that another one is asked, or no longer has the revision to resume at: then
// everybody is woken when it is open again.
func (s *Store) follow(ctx context.Context, t *topic) {
	defer t.cancel()
	pause := backoff.Backoff{Min: minReopen, Max: maxReopen}
	for {
		opened, err := s.listen(ctx, t)
		if opened {
			pause.Reset()
		}
		if ctx.Err() != nil {
			s.fail(t, driver.ErrClosed)
			return
		}
		if lasts(err) && !t.isOpen() {
			s.fail(t, s.explain(err))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Next()):
		}
	}
}

// listen opens the watch and wakes, until it ends. It says whether the watch was opened.
func (s *Store) listen(ctx context.Context, t *topic) (opened bool, err error) {
	c, stream := s.conn.Load(), s.stream.Load()
	inner, cancel := context.WithCancel(clientv3.WithRequireLeader(inStream(ctx, stream)))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	news := c.watcher.Watch(inner, s.queueOf(t.name), clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	for reply := range news {
		if err := reply.Err(); err != nil {
			return opened, s.ended(stream, err)
		}
		if reply.Created {
			opened = true
			s.opened(t, reply.Header.Revision)
		}
		for _, event := range reply.Events {
			s.deleted(t, string(event.Kv.Key), event.Kv.ModRevision)
		}
	}
	return opened, nil
}

// inStream makes the client open a watch in the stream with that number. It shares one
// between all watches with the same metadata, for as long as any of them is open. The
// user's token is that with which the stream was opened, and nobody uses it again, so
// that it expires, and the server refuses all later watches in that stream.
func inStream(ctx context.Context, number uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "dlock-watches", strconv.FormatUint(number, 10))
}

// refusals are the answers to a watch that are about the user as the token of its stream
// tells it, so that another stream may not be refused.
var refusals = []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty}

// ended says why a watch in that stream ended: the server wraps a refusal into the reason.
// After one, watches are opened in another stream.
func (s *Store) ended(stream uint64, err error) error {
	for _, refusal := range refusals {
		if strings.Contains(err.Error(), refusal.Error()) {
			s.stream.CompareAndSwap(stream, stream+1)
			return refusal
		}
	}
	return err
}

// opened: nothing is missed after that revision. What was before may have been.
func (s *Store) opened(t *topic, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.from = revision
	if !t.isOpen() {
		close(t.opened)
		return
	}
	for sub := range t.subs {
		if h := s.holds[sub.identity]; h != nil {
			h.place.stale = true
		}
		sub.wake()
	}
}

// isOpen says whether the watch was open once.
func (t *topic) isOpen() bool {
	select {
	case <-t.opened:
		return true
	default:
		return false
	}
}

// fail ends a topic that is not followed any more, and tells those who are about
// to subscribe.
func (s *Store) fail(t *topic, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.err = err
	if s.topics[t.name] == t {
		delete(s.topics, t.name)
	}
	if !t.isOpen() {
		close(t.opened)
	}
}

// deleted wakes those for whom trying again is worth it: who comes next in the
// queue, and who has no place in it.
func (s *Store) deleted(t *topic, key string, revision int64) {
	s.mu.Lock()
	t.seen = max(t.seen, revision)
	var tell []func()
	if h := s.keys[key]; h != nil && h.revision != 0 && h.revision < revision && !h.over {
		h.place.stale = true // whatever is before it, it is not the first
		tell = s.unbindUnlessBusy(h)
	}
	for sub := range t.subs {
		h := s.holds[sub.identity]
		if h == nil || h.revision == 0 || h.place.deleted(key, revision) {
			sub.wake()
		}
	}
	s.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// unbindUnlessBusy leaves a hold alone whose owner is just asking: it is perhaps
// the one who deleted the key, and finds out otherwise. Nobody else gets the key until
// then. s.mu is held.
func (s *Store) unbindUnlessBusy(h *hold) []func() {
	if len(h.turn) > 0 {
		return nil
	}
	return s.unbind(h)
}
