package etcdlock

import (
	"context"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// txn is a transaction that was not sent yet, and for an attempt how to read its answer.
type txn struct {
	conditions      []clientv3.Cmp
	then, otherwise []clientv3.Op
	read            func(reply *clientv3.TxnResponse) queueView
}

func (t txn) send(ctx context.Context, c *conn) (*clientv3.TxnResponse, error) {
	return c.kv.Txn(ctx).If(t.conditions...).Then(t.then...).Else(t.otherwise...).Commit()
}

// initialMaxOps is how many operations a transaction has at most until a server allows fewer.
// Servers allow 128 by default.
const initialMaxOps = 100

// inTxns calls send for all items, as many at a time as the server allows in a transaction. After
// an error it returns the items that are left.
func inTxns[T any](s *Store, items []T, send func(part []T) error) (left []T, err error) {
	for len(items) > 0 {
		part := items[:min(len(items), int(s.maxOps.Load()))]
		switch err := send(part); {
		case isError(err, rpctypes.ErrTooManyOps) && len(part) > 1:
			s.maxOps.Store(int64(len(part) / 2))
		case err != nil:
			return items, err
		default:
			items = items[len(part):]
		}
	}
	return nil, nil
}

// blockRule says which keys ahead of its own block a request. An exclusive request waits for all of
// them, as etcd's own package does. A shared one waits for those that are not shared. A permit is
// compatible with others of the same limit, if they are few enough. The keys of waiters block, too:
// a waiter of another program has the lock as soon as it is the first, whatever was granted behind
// it. No key is ever created ahead of another, so that a key that has the lock keeps it until it is
// deleted.
type blockRule struct {
	from, to         string      // the range of keys that can block
	compatiblePrefix string      // the beginning of the keys in the range that may be ahead
	maxCompatible    int         // how many of them may be ahead
	mode             driver.Mode // of the request
}

func blockRuleFor(prefix string, mode driver.Mode) blockRule {
	r := blockRule{from: prefix, to: clientv3.GetPrefixRangeEnd(prefix), mode: mode}
	switch {
	case mode.Limit > 0:
		r.compatiblePrefix, r.maxCompatible = prefix+markOf(mode), mode.Limit-1
	case mode.Shared:
		r.to = prefix + sharedMark
	}
	return r
}

// readLimit returns how many keys ahead an attempt reads.
func (r *blockRule) readLimit() int64 { return int64(r.maxCompatible + maxAhead) }

// queueView is the queue of a name as the server saw it, for a request in a mode.
type queueView struct {
	blockRule
	revision    int64     // at which the server saw it
	ownRevision int64     // that created the hold's key; zero if there is none
	existed     bool      // the hold's key was there before: what is ahead of it was not read
	first       holderKey // the key that was created first, which has the lock
	ahead       []string  // keys in the range before the hold's, the nearest first
	complete    bool      // ahead has all of them
}

// knownAheadAllow reports whether the known keys ahead do not block the request.
func (v *queueView) knownAheadAllow() bool {
	blocks := func(key string) bool { return !strings.HasPrefix(key, v.compatiblePrefix) }
	return len(v.ahead) <= v.maxCompatible && !slices.ContainsFunc(v.ahead, blocks)
}

// isMismatch reports whether the first key ahead is known to have another limit than the request.
func (v *queueView) isMismatch() bool {
	first := len(v.ahead) - 1
	return v.complete && first >= 0 && modeOf(v.from, v.ahead[first], nil).Limit != v.mode.Limit
}

// aheadAllow reports whether no key ahead blocks the request.
func (v *queueView) aheadAllow() bool { return v.complete && v.knownAheadAllow() }

// holderKey is the key of a lock's holder.
type holderKey struct {
	key      string
	revision int64 // that created it
	value    []byte
	mode     driver.Mode
}

// readFirst reads the first key of a queue, if there is one.
func readFirst(prefix string, kvs []*mvccpb.KeyValue) holderKey {
	if len(kvs) == 0 {
		return holderKey{}
	}
	key := string(kvs[0].Key)
	return holderKey{key, kvs[0].CreateRevision, kvs[0].Value, modeOf(prefix, key, kvs[0].Value)}
}

// readAhead reads the keys that were created before the hold's, or all if it has no key.
func (v *queueView) readAhead(reply *pb.RangeResponse) {
	v.complete = !reply.More
	for _, kv := range reply.Kvs {
		key := string(kv.Key)
		// A downgraded lock does not block a shared request. It can only be the first key.
		isDowngradedFirst := v.mode.Shared && v.first.mode.Shared && key == v.first.key
		if (v.ownRevision == 0 || kv.CreateRevision < v.ownRevision) && !isDowngradedFirst {
			v.ahead = append(v.ahead, key)
		}
	}
}

// putOnceTxn returns a write of a key that must not exist: a late write would undo a downgrade.
func putOnceTxn(key string, put clientv3.Op) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{put}, []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly())})
}

// readOwn reads the answer to putOnceTxn.
func (v *queueView) readOwn(reply *pb.TxnResponse) {
	if reply.Succeeded {
		v.ownRevision = v.revision
		return
	}
	v.existed = true
	v.ownRevision = reply.Responses[0].GetResponseRange().Kvs[0].CreateRevision
}

// attemptState is what an attempt found out from its requests so far.
type attemptState struct {
	enqueue bool  // take a place in the queue if the lock is not free
	freeAt  int64 // a revision at which the lock was free; zero if there is none
	races   int   // how often the lock was free
}

// maxRaces is how often an attempt may find the lock free and lose it to others before it takes a
// place in the queue for a moment, which decides.
const maxRaces = 3

// nextTxn returns the next transaction of an attempt, or false if the hold has lost its key. If crowd
// is not nil, the attempt reads the queue of that watch instead.
func (s *Store) nextTxn(h *hold, req *driver.Request, state attemptState) (t txn, crowd *nameWatch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == nil {
		return t, nil, false
	}
	crowd = s.crowdLocked(h)
	if h.revision != 0 {
		if h.position.stale && crowd != nil {
			return t, crowd, true
		}
		return h.positionTxnLocked(), nil, true
	}
	// A lock for which there have been no waiters lately is probably free: the transaction is
	// shorter.
	watched := s.watches[watchID{h.name, false}] != nil || s.watches[watchID{h.name, true}] != nil
	state.enqueue = state.enqueue || s.waiters[h.holdID] != nil ||
		req.Queue && (req.Fair || req.Mode != driver.Mode{} || watched)
	h.value = req.Holder.Encode()
	if state.enqueue && crowd != nil {
		return h.enqueueTxnLocked(), nil, true
	}
	return h.takeTxnLocked(state), nil, true
}

// firstKeyQuery returns an operation that reads the key that was created first.
func firstKeyQuery(prefix string) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithFirstCreate()...)
}

// lastKeysQuery returns an operation that reads the keys of the range that were created last.
func (r *blockRule) lastKeysQuery(limit int64, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(r.from, append(opts, clientv3.WithRange(r.to), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit))...)
}

// maxAhead is how many keys ahead a hold remembers in addition to the compatible ones. Behind more
// keys, it reads again when these are deleted.
const maxAhead = 8

// takeTxnLocked returns the transaction that takes the lock if no key blocks the hold. Otherwise
// the transaction writes nothing, or with enqueue takes a place in the queue. It finds the key of
// an unanswered attempt.
func (h *hold) takeTxnLocked(state attemptState) txn {
	r := blockRuleFor(h.prefix, h.mode)
	key, exclusive := h.key, h.mode == driver.Mode{}
	put := clientv3.OpPut(key, h.value, clientv3.WithLease(h.lease.id))
	t := txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(r.from).WithRange(r.to), "<", 1+state.freeAt)},
		then:       []clientv3.Op{put},
		otherwise:  []clientv3.Op{firstKeyQuery(h.prefix)},
	}
	if !exclusive { // its own key may be there all the same
		t.then[0] = putOnceTxn(key, put)
	}
	switch {
	case state.enqueue:
		t.otherwise = append(t.otherwise, putOnceTxn(key, put), r.lastKeysQuery(1+r.readLimit()))
	case !exclusive:
		t.otherwise = append(t.otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()), r.lastKeysQuery(r.readLimit()))
	}
	t.read = func(reply *clientv3.TxnResponse) queueView {
		v := queueView{blockRule: r, revision: reply.Header.Revision}
		switch {
		case reply.Succeeded && exclusive:
			v.ownRevision, v.complete = v.revision, true
			return v
		case reply.Succeeded:
			v.readOwn(reply.Responses[0].GetResponseTxn())
			v.complete = !v.existed
			return v
		}
		v.first = readFirst(h.prefix, reply.Responses[0].GetResponseRange().Kvs)
		switch {
		case v.first.key == key:
			v.ownRevision, v.complete = v.first.revision, true
			return v
		case len(t.otherwise) == 1:
			return v
		case state.enqueue:
			v.readOwn(reply.Responses[1].GetResponseTxn())
		default:
			v.ownRevision = readFirst(h.prefix, reply.Responses[1].GetResponseRange().Kvs).revision
			v.existed = v.ownRevision != 0
		}
		if !v.existed {
			v.readAhead(reply.Responses[2].GetResponseRange())
		}
		return v
	}
	return t
}

// positionTxnLocked returns the transaction that reads whether a place has the lock by now.
func (h *hold) positionTxnLocked() txn {
	r := blockRuleFor(h.prefix, h.mode)
	revision := h.revision
	return txn{
		conditions: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.key), "=", revision)},
		then:       []clientv3.Op{firstKeyQuery(h.prefix), r.lastKeysQuery(r.readLimit(), clientv3.WithMaxCreateRev(revision-1))},
		read: func(reply *clientv3.TxnResponse) queueView {
			v := queueView{blockRule: r, revision: reply.Header.Revision}
			if reply.Succeeded {
				v.ownRevision, v.first = revision, readFirst(h.prefix, reply.Responses[0].GetResponseRange().Kvs)
				v.readAhead(reply.Responses[1].GetResponseRange())
			}
			return v
		},
	}
}
