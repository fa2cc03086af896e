package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watchID identifies a watch. Shared waiters have one of their own: it reports the end and the
// downgrade of what they wait for, and not the release of other shared holders.
type watchID struct {
	name   string
	shared bool
}

// nameWatch is the watch of a name's keys, which all its waiters share. The mu of the store
// guards its fields but the first three. Only the goroutine of keepOpen writes from.
type nameWatch struct {
	watchID
	cancel context.CancelFunc
	opened chan struct{} // closed when the watch is open, or has failed

	err          error // why it failed, after which it is not used any more
	waiters      map[*waiter]struct{}
	unlocated    map[*waiter]struct{} // the waiters whose places are not in queue
	queue        *crowdQueue          // nil if the waiters are no crowd
	read         *queueRead           // under way; nil if there is none
	from         int64                // the revision after which it reports all deletions; zero before it is open
	lastDeletion int64                // the revision of the last one
	idleSince    time.Time            // when its last waiter left
}

// waiter is a caller of Watch.
type waiter struct {
	holdID
	watch     *nameWatch
	keepPlace bool // Request.Queue: Release gives up the place, and stop does not
	asked     bool // it has made an attempt since Watch
	wake      func()
}

// linger is how long a watch without waiters stays open: a process that has just had a lock often
// waits for it again.
const linger = 2 * time.Second

// Watch implements driver.Watcher. Until stop is called, the attempts of the owner keep a place in
// the queue.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.ensureConnected(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	w := &waiter{holdID: holdID{req.Name, req.Owner}, keepPlace: req.Queue, wake: wake}
	if !s.addWaiter(w, watchID{req.Name, req.Mode.Shared}) {
		return nil, driver.ErrClosed
	}
	select {
	case <-w.watch.opened:
	case <-ctx.Done():
		err = unanswered(ctx)
	}
	s.mu.Lock()
	err = cmp.Or(w.watch.err, err)
	if h := s.holds[w.holdID]; h != nil && err == nil && !s.locateLocked(h) {
		h.position.follow(w.watch)
	}
	s.mu.Unlock()
	if err != nil {
		s.removeWaiter(w)
		return nil, err
	}
	return func() { s.removeWaiter(w) }, nil
}

// addWaiter returns false if the store is closed.
func (s *Store) addWaiter(w *waiter, id watchID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	nw := s.watches[id]
	if nw == nil {
		nw = &nameWatch{watchID: id, opened: make(chan struct{}),
			waiters: make(map[*waiter]struct{}), unlocated: make(map[*waiter]struct{})}
		s.watches[id] = nw
		ctx, cancel := context.WithCancel(s.ctx)
		nw.cancel = cancel
		s.work.Go(func() { s.keepOpen(ctx, nw) })
	}
	w.watch = nw
	nw.waiters[w], nw.unlocated[w] = struct{}{}, struct{}{}
	s.waiters[w.holdID] = w
	if h := s.holds[w.holdID]; h != nil {
		s.keepLeaseLocked(h)
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
	delete(w.watch.unlocated, w)
	if len(w.watch.waiters) == 0 {
		w.watch.idleSince, w.watch.queue = time.Now(), nil
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
	if now := time.Now(); h.expires.Before(now) { // also if it is not set yet
		h.expires = now
	}
	s.alarm.NoLaterThan(h.expires)
	if !w.keepPlace {
		s.whenIdleLocked(w.holdID, s.leaveQueue)
	}
}

// closeIdleWatchesLocked closes the watches that have had no waiters for a while.
func (s *Store) closeIdleWatchesLocked(now time.Time) {
	for id, nw := range s.watches {
		if len(nw.waiters) > 0 {
			continue
		}
		if until := nw.idleSince.Add(linger); now.Before(until) {
			s.alarm.NoLaterThan(until)
			continue
		}
		delete(s.watches, id)
		nw.cancel()
	}
}

// keepOpen keeps the watch open until ctx ends. The client itself resumes a watch whose connection
// broke. The server ends a watch if it has no leader, or no longer has the revision to resume at:
// then keepOpen opens the watch again, at another member if need be, and wakes all waiters.
func (s *Store) keepOpen(ctx context.Context, nw *nameWatch) {
	defer nw.cancel()
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for {
		opened, err := s.receive(ctx, nw)
		if opened {
			pause.Reset()
		}
		if ctx.Err() != nil {
			s.watchFailed(nw, driver.ErrClosed)
			return
		}
		if r := rejectionOf(err); r != nil && !errors.Is(r.kind, driver.ErrUnreachable) && nw.from == 0 {
			s.watchFailed(nw, s.explain(ctx, err))
			return
		}
		_ = pause.Wait(ctx) // receive notices its end
	}
}

// receive opens the watch and handles its events until it ends. It reports whether the watch was
// opened.
func (s *Store) receive(ctx context.Context, nw *nameWatch) (opened bool, err error) {
	c, stream := s.conn.Load(), s.watchStream.Load()
	inner, cancel := context.WithCancel(clientv3.WithRequireLeader(inStream(ctx, stream)))
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	prefix := s.queuePrefix(nw.name)
	events := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFilterPut()}
	if nw.shared {
		events = []clientv3.OpOption{clientv3.WithRange(prefix + sharedMark)}
	}
	replies := c.watcher.Watch(inner, prefix, append(events, clientv3.WithCreatedNotify())...)
	for reply := range replies {
		if err := reply.Err(); err != nil {
			return opened, s.watchError(c, stream, err)
		}
		if reply.Created {
			opened = true
			s.watchOpened(nw, reply.Header.Revision)
		}
		for _, event := range reply.Events {
			s.keyChanged(nw, event)
		}
	}
	return opened, nil
}

// inStream makes the client open a watch in the stream with that number. The client shares a
// stream between all watches with the same metadata, for as long as any of them is open. A stream
// keeps the auth token with which it was opened. Nothing else uses that auth token, so that it
// expires, and then the server rejects all new watches in that stream.
func inStream(ctx context.Context, number uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "dlock-watches", strconv.FormatUint(number, 10))
}

// authTokenErrors are rejections of a watch because of the auth token of its stream: another stream
// may not be rejected.
var authTokenErrors = []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty}

// watchError returns why a watch in that stream ended. After one of authTokenErrors, later watches
// are opened in another stream. It returns nil if a learner rejected the watch: then another member is asked.
func (s *Store) watchError(c *conn, stream uint64, err error) error {
	if isError(err, errLearner) {
		s.examine(c)
		return nil
	}
	for _, rejection := range authTokenErrors {
		if strings.Contains(err.Error(), rejection.Error()) { // the server wraps it in a text
			s.watchStream.CompareAndSwap(stream, stream+1)
			return rejection
		}
	}
	return err
}

// watchOpened records that the watch reports all deletions after a revision. Before it, some may
// have been missed.
func (s *Store) watchOpened(nw *nameWatch, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := nw.from == 0
	nw.from = revision
	if first {
		close(nw.opened)
		return
	}
	s.dropQueueLocked(nw)
}

// watchFailed ends a watch, and reports err to the callers of Watch that wait for it to open.
func (s *Store) watchFailed(nw *nameWatch, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nw.err = err
	if s.watches[nw.watchID] == nw {
		delete(s.watches, nw.watchID)
	}
	if nw.from == 0 {
		close(nw.opened)
	}
}

// keyChanged records that a key was deleted, or downgraded: for shared waiters both end what they
// wait for. It wakes the waiters for which another attempt may succeed: the next in the queue, and
// those without a place.
func (s *Store) keyChanged(nw *nameWatch, event *clientv3.Event) {
	key, revision, deleted := string(event.Kv.Key), event.Kv.ModRevision, event.Type == clientv3.EventTypeDelete
	if !deleted && !isDowngraded(event.Kv.Value) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.keys[key]; h != nil && deleted && h.revision != 0 && h.revision < revision && !h.ended {
		h.position.stale = true // without its key it is not the first
		// A call that has locked the hold may have deleted the key itself, or finds out.
		if !h.busy.isLocked() {
			s.keyLostLocked(h)
		}
	}
	nw.lastDeletion = max(nw.lastDeletion, revision)
	s.keyDeletedLocked(nw, key, revision)
	for w := range nw.unlocated {
		h := s.holds[w.holdID]
		if h == nil || h.revision == 0 || h.position.noteDeleted(key, revision) {
			w.wake()
		}
	}
}
