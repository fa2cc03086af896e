package etcdlock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// query is a transaction, and for an attempt how to read its answer.
type query struct {
	conditions      []clientv3.Cmp
	then, otherwise []clientv3.Op
	read            func(reply *clientv3.TxnResponse) queueView
}

func (q query) send(ctx context.Context, c *conn) (*clientv3.TxnResponse, error) {
	return c.kv.Txn(ctx).If(q.conditions...).Then(q.then...).Else(q.otherwise...).Commit()
}

// queueView is the queue of a name as the server saw it.
type queueView struct {
	revision int64     // at which the server saw it
	own      int64     // the revision that created the own key; zero if there is none
	first    holderKey // the key that has the lock
	ahead    []string  // keys before the own, the nearest first
	complete bool      // ahead has all of them
}

// holderKey is the key of a lock's holder.
type holderKey struct {
	key      string
	revision int64 // that created it
	value    []byte
}

func readFirst(kvs []*mvccpb.KeyValue) holderKey {
	if len(kvs) == 0 {
		return holderKey{}
	}
	return holderKey{string(kvs[0].Key), kvs[0].CreateRevision, kvs[0].Value}
}

// readAhead reads the keys that were created before the own.
func (v *queueView) readAhead(found *pb.RangeResponse) {
	v.complete = !found.More
	for _, kv := range found.Kvs {
		if kv.CreateRevision < v.own {
			v.ahead = append(v.ahead, string(kv.Key))
		}
	}
}

// nextQuery returns what to ask for a hold. It returns false if the hold has lost its key.
func (s *Store) nextQuery(h *hold, req *driver.Request) (q query, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == nil {
		return q, false
	}
	if h.revision != 0 {
		return confirm(h.queue, h.key, h.revision), true
	}
	put := func(more ...clientv3.OpOption) clientv3.Op {
		return clientv3.OpPut(h.key, req.Holder.Encode(), append(more, clientv3.WithLease(h.lease.id))...)
	}
	// A lock for which there have been no waiters lately is probably free: the query is shorter.
	enqueue := s.waiters[h.holdID] != nil || req.Queue && (req.Fair || s.watches[h.name] != nil)
	return take(h.queue, h.key, enqueue, put), true
}

// firstKey reads the key of the holder.
func firstKey(queue string) clientv3.Op {
	return clientv3.OpGet(queue, clientv3.WithFirstCreate()...)
}

// lastKeys reads the keys of the queue that were created last.
func lastKeys(queue string, limit int64, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(queue, append(opts, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit))...)
}

// maxAhead is how many keys before its own a hold remembers. A hold with more asks again when the
// nearest is deleted.
const maxAhead = 8

// take takes a lock that has no holder and no waiters. Otherwise it writes nothing, or with enqueue
// takes a place in the queue. It finds the key of an attempt that was not answered.
func take(queue, key string, enqueue bool, put func(...clientv3.OpOption) clientv3.Op) query {
	otherwise := []clientv3.Op{firstKey(queue)}
	if enqueue {
		otherwise = append(otherwise, put(clientv3.WithPrevKV()), lastKeys(queue, 1+maxAhead))
	}
	return query{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)},
		then:       []clientv3.Op{put()},
		otherwise:  otherwise,
		read: func(reply *clientv3.TxnResponse) queueView {
			v := queueView{revision: reply.Header.Revision}
			if reply.Succeeded {
				v.own, v.first = v.revision, holderKey{key: key, revision: v.revision}
				return v
			}
			v.first = readFirst(reply.Responses[0].GetResponseRange().Kvs)
			switch {
			case v.first.key == key:
				v.own = v.first.revision
			case !enqueue:
			case reply.Responses[1].GetResponsePut().PrevKv != nil:
				v.own = reply.Responses[1].GetResponsePut().PrevKv.CreateRevision
			default:
				v.own = v.revision
				v.readAhead(reply.Responses[2].GetResponseRange())
			}
			return v
		},
	}
}

// confirm reads whether a place in the queue is the first by now.
func confirm(queue, key string, revision int64) query {
	return query{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		then:       []clientv3.Op{firstKey(queue), lastKeys(queue, maxAhead, clientv3.WithMaxCreateRev(revision-1))},
		read: func(reply *clientv3.TxnResponse) queueView {
			v := queueView{revision: reply.Header.Revision}
			if reply.Succeeded {
				v.own, v.first = revision, readFirst(reply.Responses[0].GetResponseRange().Kvs)
				v.readAhead(reply.Responses[1].GetResponseRange())
			}
			return v
		},
	}
}
