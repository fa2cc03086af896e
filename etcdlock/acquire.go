package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Acquire implements driver.Store. One that finds the lock free is one
// transaction. Who waits, because the request is to queue or is watched, keeps a
// place in the queue.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	h, err := s.open(ctx, identity{req.Name, req.Owner})
	if err != nil {
		return driver.Grant{}, err
	}
	if o, known := s.known(h, &req); known {
		h.leave()
		return o.grant, o.err
	}
	o, err := carry(ctx, s, h, func(call context.Context) outcome { return s.attempt(call, ctx, h, &req) })
	if err != nil {
		return driver.Grant{}, err
	}
	return o.grant, o.err
}

type outcome struct {
	grant driver.Grant
	err   error
}

// attempt asks once, and again if it finds that the lease has ended, but only while the
// caller waits: asking again could take a lock that no caller wants.
func (s *Store) attempt(ctx, caller context.Context, h *hold, req *driver.Request) outcome {
	for asked := false; !asked || caller.Err() == nil; asked = true {
		l, err := s.bound(ctx, h, req.TTL)
		if err != nil {
			return outcome{err: s.failed(h, req, err)}
		}
		if o, known := s.known(h, req); known { // now that the lease was renewed
			return o
		}
		asks, ok := s.question(h, req)
		if !ok { // the lease has ended just now
			continue
		}
		var reply *clientv3.TxnResponse
		late, err := s.tryOnce(ctx, func(ctx context.Context, c *conn) (err error) {
			reply, err = c.kv.Txn(ctx).If(asks.conditions...).Then(asks.then...).Else(asks.otherwise...).Commit()
			return err
		})
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.lose(l)
			continue
		}
		if late {
			s.doubt(h, req.TTL)
			continue
		}
		if err != nil {
			return outcome{err: s.failed(h, req, s.explain(err))}
		}
		if o, decided := s.decide(h, req, asks.read(reply)); decided {
			return o
		}
	}
	return outcome{err: s.failed(h, req, context.Cause(caller))}
}

// bound makes sure that the hold has a key, on a lease that was renewed just now.
func (s *Store) bound(ctx context.Context, h *hold, ttl time.Duration) (*lease, error) {
	for {
		s.mu.Lock()
		l := h.lease
		s.mu.Unlock()
		var err error
		if l != nil {
			err = s.refresh(ctx, l)
		} else {
			l, err = s.leaseFor(ctx, ttl)
		}
		switch {
		case errors.Is(err, errLeaseGone) && ctx.Err() == nil: // then the hold is not on it any more
		case err != nil:
			return nil, err
		case s.bind(h, l):
			return l, nil
		}
	}
}

// question is a transaction and how to read its answer.
type question struct {
	conditions      []clientv3.Cmp
	then, otherwise []clientv3.Op
	read            func(reply *clientv3.TxnResponse) answer
}

// answer is what a question found out.
type answer struct {
	revision int64     // that created the own key; zero if there is none
	seen     int64     // the revision at which this was so
	first    holderKey // the key that has the lock
	ahead    []string  // the keys before the own, the nearest first
	all      bool      // they are all that there are
}

// holderKey is a key that has the lock.
type holderKey struct {
	key      string
	revision int64
	value    []byte
}

func (k holderKey) holder() driver.Holder { return driver.DecodeHolder(string(k.value)) }

func readFirst(kvs []*mvccpb.KeyValue) holderKey {
	if len(kvs) == 0 {
		return holderKey{}
	}
	return holderKey{string(kvs[0].Key), kvs[0].CreateRevision, kvs[0].Value}
}

// question decides what to ask for a hold. It returns false if it has no key any
// more.
func (s *Store) question(h *hold, req *driver.Request) (q question, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == nil {
		return q, false
	}
	queue := h.queue
	if h.revision != 0 {
		return confirm(queue, h.key, h.revision), true
	}
	put := func(more ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpPut(h.key, req.Holder.Encode(), append(more, clientv3.WithLease(h.lease.id))...)
	}
	// Where nobody has waited lately the lock is likely to be free, and a shorter
	// question will do.
	if s.waiting[h.identity] != nil || req.Queue && (req.Fair || s.topics[h.name] != nil) {
		return enqueue(queue, h.key, put), true
	}
	return take(queue, h.key, put), true
}

// isFree is the condition that nobody has or wants the lock.
func isFree(queue string) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)}
}

// taken is the answer when the lock was free.
func taken(key string, reply *clientv3.TxnResponse) answer {
	revision := reply.Header.Revision
	return answer{revision: revision, seen: revision, first: holderKey{key: key, revision: revision}}
}

// take takes the lock only if nobody has or wants it, and leaves nothing behind
// otherwise.
func take(queue, key string, put func(...clientv3.OpOption) clientv3.Op) question {
	return question{
		conditions: isFree(queue),
		then:       []clientv3.Op{put()},
		otherwise:  []clientv3.Op{clientv3.OpGet(queue, clientv3.WithFirstCreate()...)},
		read: func(reply *clientv3.TxnResponse) answer {
			if reply.Succeeded {
				return taken(key, reply)
			}
			a := answer{seen: reply.Header.Revision, first: readFirst(reply.Responses[0].GetResponseRange().Kvs)}
			if a.first.key == key { // of an attempt that went unanswered
				a.revision = a.first.revision
			}
			return a
		},
	}
}

// knownAhead is how many keys before its own a hold remembers. Who has more before
// it asks again when the nearest is gone.
const knownAhead = 8

// newest are the keys of the queue that were created last, or those before a revision.
func newest(queue string, limit int64, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(queue, append(opts, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit))...)
}

// enqueue takes the lock if nobody has or wants it, and otherwise a place in the
// queue, or finds the one that an attempt took which went unanswered.
func enqueue(queue, key string, put func(...clientv3.OpOption) clientv3.Op) question {
	return question{
		conditions: isFree(queue),
		then:       []clientv3.Op{put()},
		otherwise:  []clientv3.Op{put(clientv3.WithPrevKV()), clientv3.OpGet(queue, clientv3.WithFirstCreate()...), newest(queue, 1+knownAhead)},
		read: func(reply *clientv3.TxnResponse) answer {
			if reply.Succeeded {
				return taken(key, reply)
			}
			a := answer{seen: reply.Header.Revision, first: readFirst(reply.Responses[1].GetResponseRange().Kvs)}
			if before := reply.Responses[0].GetResponsePut().PrevKv; before != nil {
				a.revision = before.CreateRevision
				return a
			}
			a.revision = reply.Header.Revision
			a.readAhead(reply.Responses[2].GetResponseRange(), a.revision)
			return a
		},
	}
}

// readAhead reads the keys of the queue that were created before a revision.
func (a *answer) readAhead(found *pb.RangeResponse, revision int64) {
	a.all = !found.More
	for _, kv := range found.Kvs {
		if kv.CreateRevision < revision {
			a.ahead = append(a.ahead, string(kv.Key))
		}
	}
}

// confirm looks whether a place in the queue is the first by now. It writes
// nothing.
func confirm(queue, key string, revision int64) question {
	return question{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		then:       []clientv3.Op{clientv3.OpGet(queue, clientv3.WithFirstCreate()...), newest(queue, knownAhead, clientv3.WithMaxCreateRev(revision-1))},
		read: func(reply *clientv3.TxnResponse) answer {
			if !reply.Succeeded {
				return answer{seen: reply.Header.Revision}
			}
			a := answer{revision: revision, seen: reply.Header.Revision, first: readFirst(reply.Responses[0].GetResponseRange().Kvs)}
			a.readAhead(reply.Responses[1].GetResponseRange(), revision)
			return a
		},
	}
}

// decide makes a grant or a refusal of an answer. It returns false if it has to be
// asked again, because the hold is not on its lease any more or its key is gone.
func (s *Store) decide(h *hold, req *driver.Request, a answer) (outcome, bool) {
	var tell []func()
	defer func() {
		for _, f := range tell {
			f()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.lease == nil:
		return outcome{}, false
	case a.revision == 0 && h.revision != 0: // the key was deleted
		h.lost = nil // who asks again is told by the answer
		tell = s.unbind(h)
		return outcome{}, false
	case a.revision != 0 && a.first.revision == a.revision:
		return outcome{grant: s.granted(h, req, a)}, true
	case a.revision != 0:
		s.queued(h, req, a)
	default:
		s.end(h)
		s.free(h)
	}
	return outcome{err: s.refusal(h.name, a.first)}, true
}

// granted notes that the hold has the lock. s.mu is held.
func (s *Store) granted(h *hold, req *driver.Request, a answer) driver.Grant {
	ttl := h.lease.promise(req.TTL)
	if !h.held || h.ttl < ttl { // asking again never shortens
		h.ttl = ttl
	}
	h.held, h.revision, h.lost = true, a.revision, req.Lost
	s.expireAt(h, time.Now().Add(h.ttl))
	return driver.Grant{Name: h.name, Owner: h.owner, Token: uint64(a.revision), TTL: ttl, Handle: handle(h.key)}
}

// queued notes that the hold has a place. s.mu is held.
func (s *Store) queued(h *hold, req *driver.Request, a answer) {
	h.held, h.revision = false, a.revision
	h.place = newPlace(a)
	s.expireAt(h, time.Now().Add(req.TTL))
	s.keep(h)
	// A key before it may have gone between the answer and this moment.
	if waits := s.waiting[h.identity]; waits != nil && !h.place.followed(waits.topic) {
		waits.wake()
	}
}

// doubt notes that an attempt may still be carried out.
func (s *Store) doubt(h *hold, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != nil && h.revision == 0 {
		h.doubted = true
		s.expireAt(h, time.Now().Add(ttl))
	}
}

// failed notes an attempt without an answer, or one that was refused for a reason
// that has nothing to do with the lock.
func (s *Store) failed(h *hold, req *driver.Request, err error) error {
	if !isCertain(err) {
		s.doubt(h, req.TTL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.revision == 0 && !h.doubted {
		s.end(h)
		s.free(h)
	}
	return err
}
