package etcdlock

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowdQueue is all keys of a name as the server saw them, which the exclusive waiters of a process share.
// The watch keeps it up to date: keys are never inserted ahead of others, and only deleted. Without it
// every waiter would read what is ahead of it, which costs the server as much as the queue is long.
type crowdQueue struct {
	revision int64 // at which the server saw it
	first    holderKey
	keys     []queuedKey // in the order of their creation; those before head are deleted
	head     int
	index    map[string]int // of the keys
}

type queuedKey struct {
	key      string
	revision int64 // that created it
	deleted  bool
}

// queueRead is a request under way that reads the queue.
type queueRead struct {
	done    chan struct{}
	deleted map[string]int64 // the keys that were deleted since it began, and when
}

// crowded is from how many waiters of a process on they share what they know of the queue. Fewer
// follow the keys ahead by themselves: see maxAhead.
const crowded = maxAhead

// crowdLocked returns the watch whose queue the hold shares with others, or nil.
func (s *Store) crowdLocked(h *hold) *nameWatch {
	nw := s.watches[watchID{h.name, false}]
	if h.mode != (driver.Mode{}) || nw == nil || nw.from == 0 || len(nw.waiters) < crowded && nw.queue == nil {
		return nil
	}
	return nw
}

// locateLocked finds the hold's place in the queue of its crowd. It returns false if the queue does
// not say where the place is.
func (s *Store) locateLocked(h *hold) bool {
	nw := s.crowdLocked(h)
	if nw == nil || nw.queue == nil || h.revision == 0 || h.revision > nw.queue.revision {
		return false
	}
	v := nw.queue.viewOf(h)
	v.revision = max(v.revision, nw.lastDeletion)
	h.position = position{queueView: v}
	if w := s.waiters[h.holdID]; w != nil && w.watch == nw && v.ownRevision != 0 {
		delete(nw.unlocated, w)
	}
	return true
}

// readQueue returns what is ahead of the place of a hold. Holds of a crowd share the request: a read
// that was under way before may be too old for the place, and the next one is not.
func (s *Store) readQueue(ctx context.Context, nw *nameWatch, h *hold) (v queueView, again bool, err error) {
	for range 3 {
		s.mu.Lock()
		located := s.locateLocked(h)
		v = h.position.queueView
		read, isReader := nw.read, nw.read == nil
		if !located && isReader {
			read = &queueRead{done: make(chan struct{}), deleted: make(map[string]int64)}
			nw.read = read
		}
		s.mu.Unlock()
		switch {
		case located:
			return v, false, nil
		case isReader:
			if err := s.readKeys(ctx, nw, read); err != nil {
				return v, false, err
			}
		default:
			select {
			case <-read.done:
			case <-ctx.Done():
				return v, false, context.Cause(ctx)
			}
		}
	}
	return v, true, nil // the crowd has ended meanwhile, or its watch was opened again
}

// readKeys reads the queue of a crowd. The answer is not used if the watch has missed deletions since.
func (s *Store) readKeys(ctx context.Context, nw *nameWatch, read *queueRead) error {
	prefix := s.queuePrefix(nw.name)
	t := txn{then: []clientv3.Op{firstKeyQuery(prefix), clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())}}
	reply, _, err := retry(ctx, s, t.send)
	s.mu.Lock()
	defer s.mu.Unlock()
	nw.read = nil
	close(read.done)
	if err != nil || nw.from == 0 || reply.Header.Revision < nw.from {
		return err
	}
	q := &crowdQueue{revision: reply.Header.Revision, first: readFirst(prefix, reply.Responses[0].GetResponseRange().Kvs)}
	for _, kv := range reply.Responses[1].GetResponseRange().Kvs {
		q.keys = append(q.keys, queuedKey{string(kv.Key), kv.CreateRevision, read.deleted[string(kv.Key)] > q.revision})
	}
	slices.SortFunc(q.keys, func(a, b queuedKey) int { return cmp.Compare(a.revision, b.revision) })
	q.index = make(map[string]int, len(q.keys))
	for i := range q.keys {
		q.index[q.keys[i].key] = i
	}
	if q.advance(); q.head > 0 && q.first.mode.Limit != 0 {
		return nil // see keyDeletedLocked
	}
	nw.queue = q
	return nil
}

func (q *crowdQueue) advance() {
	for q.head < len(q.keys) && q.keys[q.head].deleted {
		q.head++
	}
}

// viewOf returns what is ahead of the place of an exclusive hold.
func (q *crowdQueue) viewOf(h *hold) queueView {
	v := queueView{blockRule: blockRuleFor(h.prefix, h.mode), revision: q.revision, first: q.first}
	i, known := q.index[h.key]
	if !known || q.keys[i].deleted || q.keys[i].revision != h.revision {
		return v // the key is gone
	}
	v.ownRevision = h.revision
	for i--; i >= q.head && int64(len(v.ahead)) < v.readLimit(); i-- {
		if !q.keys[i].deleted {
			v.ahead = append(v.ahead, q.keys[i].key)
		}
	}
	v.complete = i < q.head
	return v
}

// keyDeletedLocked notes the deletion of a key in the queue that the crowd shares. It wakes the waiter
// that is the first now. All others go on waiting, unless the first has, or had, another mode: that decides
// whether they get ErrMode.
func (s *Store) keyDeletedLocked(nw *nameWatch, key string, revision int64) {
	if nw.read != nil {
		nw.read.deleted[key] = revision
	}
	q := nw.queue
	if q == nil {
		return
	}
	i, known := q.index[key]
	if !known || q.keys[i].revision >= revision {
		return
	}
	before := q.head
	q.keys[i].deleted = true
	if q.advance(); q.head == before || q.head == len(q.keys) {
		return
	}
	first := q.keys[q.head].key
	if q.first.mode.Limit != 0 || modeOf(s.queuePrefix(nw.name), first, nil).Limit != 0 {
		s.dropQueueLocked(nw)
		return
	}
	if h := s.keys[first]; h != nil && !h.held && s.locateLocked(h) {
		if w := s.waiters[h.holdID]; w != nil {
			w.wake()
		}
	}
}

// dropQueueLocked makes the waiters of a crowd ask for their positions.
func (s *Store) dropQueueLocked(nw *nameWatch) {
	nw.queue = nil
	nw.unlocated = maps.Clone(nw.waiters)
	for w := range nw.waiters {
		if h := s.holds[w.holdID]; h != nil {
			h.position.stale = true
		}
		w.wake()
	}
}

// enqueueTxnLocked returns the transaction that takes a place in the queue without reading it.
func (h *hold) enqueueTxnLocked() txn {
	put := clientv3.OpPut(h.key, h.value, clientv3.WithLease(h.lease.id))
	r := blockRuleFor(h.prefix, h.mode)
	once := putOnceTxn(h.key, put)
	return txn{
		then: []clientv3.Op{once},
		read: func(reply *clientv3.TxnResponse) queueView {
			v := queueView{blockRule: r, revision: reply.Header.Revision}
			v.readOwn(reply.Responses[0].GetResponseTxn())
			v.existed = true // what is ahead was not read
			return v
		},
	}
}
