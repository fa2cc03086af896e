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

// queueWatch is the watch of a name's queue, which all its waiters share. The mu of the store
// guards its fields but the first three. Only the goroutine of keepOpen writes from.
type queueWatch struct {
	name   string
	cancel context.CancelFunc
	opened chan struct{} // closed when the watch is open, or has failed

	err          error // why it failed, after which it is not used any more
	waiters      map[*waiter]struct{}
	from         int64     // the revision after which it reports all deletions; zero before it is open
	lastDeletion int64     // the revision of the last one
	idleSince    time.Time // when its last waiter left
}

// waiter is a caller of Watch.
type waiter struct {
	holdID
	watch  *queueWatch
	queues bool // its place in the queue is given up by Release
	asked  bool // it has made an attempt since Watch
	wake   func()
}

// linger is how long a watch without waiters stays open: a process that has just had a lock often
// waits for it again.
const linger = 2 * time.Second

// Watch implements driver.Watcher. Until stop is called, the attempts of the owner keep a place in
// the queue.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	w := &waiter{holdID: holdID{req.Name, req.Owner}, queues: req.Queue, wake: wake}
	if !s.addWaiter(w) {
		return nil, driver.ErrClosed
	}
	select {
	case <-w.watch.opened:
	case <-ctx.Done():
		s.removeWaiter(w)
		return nil, unanswered(ctx)
	}
	s.mu.Lock()
	err = w.watch.err
	if h := s.holds[w.holdID]; h != nil && err == nil {
		h.place.follow(w.watch)
	}
	s.mu.Unlock()
	if err != nil {
		s.removeWaiter(w)
		return nil, err
	}
	return func() { s.removeWaiter(w) }, nil
}

// addWaiter returns false if the store is closed.
func (s *Store) addWaiter(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	qw := s.watches[w.name]
	if qw == nil {
		qw = &queueWatch{name: w.name, opened: make(chan struct{}), waiters: make(map[*waiter]struct{})}
		s.watches[w.name] = qw
		ctx, cancel := context.WithCancel(s.ctx)
		qw.cancel = cancel
		s.work.Go(func() { s.keepOpen(ctx, qw) })
	}
	w.watch = qw
	qw.waiters[w] = struct{}{}
	s.waiters[w.holdID] = w
	if h := s.holds[w.holdID]; h != nil {
		s.keepLease(h)
	}
	return true
}

// removeWaiter removes a waiter, which is not woken any more: wake is only called with s.mu held.
func (s *Store) removeWaiter(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := w.watch.waiters[w]; !ok {
		return // stop was called twice
	}
	delete(w.watch.waiters, w)
	if len(w.watch.waiters) == 0 {
		w.watch.idleSince = time.Now()
		s.alarm.NoLaterThan(w.watch.idleSince.Add(linger))
	}
	if s.waiters[w.holdID] != w {
		return
	}
	delete(s.waiters, w.holdID)
	h := s.holds[w.holdID]
	if h == nil || h.held {
		return
	}
	if now := time.Now(); h.expires.Before(now) { // or zero
		h.expires = now
	}
	s.alarm.NoLaterThan(h.expires)
	if !w.queues {
		s.background(func() { s.leaveQueue(w.holdID) })
	}
}

// closeIdleWatches closes the watches that have had no waiters for a while. The caller holds s.mu.
func (s *Store) closeIdleWatches(now time.Time, due *dueWork) {
	for name, qw := range s.watches {
		if len(qw.waiters) > 0 {
			continue
		}
		if until := qw.idleSince.Add(linger); now.Before(until) {
			due.noLaterThan(until)
			continue
		}
		delete(s.watches, name)
		qw.cancel()
	}
}

// keepOpen keeps the watch open until ctx ends. The client itself resumes a watch whose
// connection broke. A watch ends when the server has no leader, so that another member is asked,
// or no longer has the revision to resume at: then all waiters are woken when it is open again.
func (s *Store) keepOpen(ctx context.Context, qw *queueWatch) {
	defer qw.cancel()
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		opened, err := s.receive(ctx, qw)
		if opened {
			pause.Reset()
		}
		if ctx.Err() != nil {
			s.watchFailed(qw, driver.ErrClosed)
			return
		}
		if r := rejectionOf(err); r != nil && r.kind != driver.ErrUnreachable && qw.from == 0 {
			s.watchFailed(qw, s.explain(ctx, err))
			return
		}
		_ = pause.Wait(ctx) // receive notices its end
	}
}

// receive opens the watch and handles its events until it ends. It reports whether the watch was
// opened.
func (s *Store) receive(ctx context.Context, qw *queueWatch) (opened bool, err error) {
	c, stream := s.conn.Load(), s.stream.Load()
	inner, cancel := context.WithCancel(clientv3.WithRequireLeader(inStream(ctx, stream)))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	replies := c.watcher.Watch(inner, s.queueOf(qw.name), clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	for reply := range replies {
		if err := reply.Err(); err != nil {
			return opened, s.watchError(stream, err)
		}
		if reply.Created {
			opened = true
			s.watchOpened(qw, reply.Header.Revision)
		}
		for _, event := range reply.Events {
			s.keyDeleted(qw, string(event.Kv.Key), event.Kv.ModRevision)
		}
	}
	return opened, nil
}

// inStream makes the client open a watch in the stream with that number. The client shares a
// stream between all watches with the same metadata, for as long as any of them is open. A stream
// keeps the user's token with which it was opened. Nothing else uses that token, so that it
// expires, and then the server rejects all new watches in that stream.
func inStream(ctx context.Context, number uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "dlock-watches", strconv.FormatUint(number, 10))
}

// tokenErrors are rejections of a watch because of the token of its stream: another stream may not
// be rejected.
var tokenErrors = []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty}

// watchError returns why a watch in that stream ended. After a tokenError, watches are opened in
// another stream.
func (s *Store) watchError(stream uint64, err error) error {
	for _, rejection := range tokenErrors {
		if strings.Contains(err.Error(), rejection.Error()) { // the server wraps it in a text
			s.stream.CompareAndSwap(stream, stream+1)
			return rejection
		}
	}
	return err
}

// watchOpened records that the watch reports all deletions after a revision. Before it, some may
// have been missed.
func (s *Store) watchOpened(qw *queueWatch, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := qw.from == 0
	qw.from = revision
	if first {
		close(qw.opened)
		return
	}
	for w := range qw.waiters {
		if h := s.holds[w.holdID]; h != nil {
			h.place.stale = true
		}
		w.wake()
	}
}

// watchFailed ends a watch, and reports err to the callers of Watch that wait for it to open.
func (s *Store) watchFailed(qw *queueWatch, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.err = err
	if s.watches[qw.name] == qw {
		delete(s.watches, qw.name)
	}
	if qw.from == 0 {
		close(qw.opened)
	}
}

// keyDeleted wakes the waiters for which trying again is worth it: the next in the queue, and
// those without a place.
func (s *Store) keyDeleted(qw *queueWatch, key string, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.lastDeletion = max(qw.lastDeletion, revision)
	if h := s.keys[key]; h != nil && h.revision != 0 && h.revision < revision && !h.ended {
		h.place.stale = true // without its key it is not the first
		// A call that has locked the hold may have deleted the key itself, or finds out.
		if !h.busy.isLocked() {
			s.keyLost(h)
		}
	}
	for w := range qw.waiters {
		h := s.holds[w.holdID]
		if h == nil || h.revision == 0 || h.place.deleted(key, revision) {
			w.wake()
		}
	}
}
