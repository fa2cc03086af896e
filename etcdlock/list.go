package etcdlock

import (
	"context"
	"iter"
	"time"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// List implements driver.Lister. It includes the locks of other programs, and does not know since
// when a lock is held, because etcd keeps no time. It also reads the keys that are no locks: use
// a prefix in a server that has other keys.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		known := make(map[int64]time.Duration)
		for q, err := range s.queues(ctx, s.prefix+escaper.Replace(prefix)) {
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			info, held, err := s.describe(ctx, &q, known)
			if (held || err != nil) && !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	for q, err := range s.queues(ctx, s.queueOf(name)) { // there is one at most
		if err != nil {
			return driver.Info{}, false, err
		}
		return s.describe(ctx, &q, make(map[int64]time.Duration))
	}
	return driver.Info{}, false, nil
}

// keyQueue is the queue of a name.
type keyQueue struct {
	name  string
	first *mvccpb.KeyValue
	count int
}

// pageSize is how many keys are read at a time.
const pageSize = 1000

// queues yields the queues whose keys begin with start. An error is the last thing it yields.
func (s *Store) queues(ctx context.Context, start string) iter.Seq2[keyQueue, error] {
	return func(yield func(keyQueue, error) bool) {
		err := s.usable(ctx)
		end := clientv3.GetPrefixRangeEnd(start)
		if start == "" {
			start, end = "\x00", "\x00" // all keys
		}
		var q keyQueue
		for more := err == nil; more; {
			var reply *clientv3.GetResponse
			if reply, err = s.get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(pageSize)); err != nil {
				err = s.explain(ctx, err)
				break
			}
			for _, kv := range reply.Kvs { // in their order: the keys of a queue follow each other
				name, ok := s.nameOf(string(kv.Key), kv.Lease)
				if !ok {
					continue
				}
				if name != q.name {
					if q.first != nil && !yield(q, nil) {
						return
					}
					q = keyQueue{name: name}
				}
				if q.count++; q.first == nil || kv.CreateRevision < q.first.CreateRevision {
					q.first = kv
				}
			}
			if more = reply.More && len(reply.Kvs) > 0; more {
				start = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
			}
		}
		if err != nil || q.first != nil {
			yield(q, err)
		}
	}
}

// get reads keys.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return try(ctx, s, func(ctx context.Context, c *conn) (*clientv3.GetResponse, error) { return c.kv.Get(ctx, key, opts...) })
}

// describe returns the holder of a queue. It returns false if its lease has ended. known has the
// time left of the leases that the server was asked for.
func (s *Store) describe(ctx context.Context, q *keyQueue, known map[int64]time.Duration) (driver.Info, bool, error) {
	id := q.first.Lease
	if _, ok := known[id]; !ok {
		reply, err := try(ctx, s, func(ctx context.Context, c *conn) (*pb.LeaseTimeToLiveResponse, error) {
			return c.leaser.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id}, grpc.WaitForReady(true))
		})
		if err != nil {
			return driver.Info{}, false, s.explain(ctx, err)
		}
		known[id] = time.Duration(reply.TTL) * time.Second
	}
	if known[id] < 0 {
		return driver.Info{}, false, nil
	}
	return driver.Info{
		Name:      q.name,
		Token:     tokenOf(q.first.CreateRevision),
		Holder:    driver.DecodeHolder(string(q.first.Value)),
		Remaining: known[id],
		Waiters:   q.count - 1,
	}, true, nil
}
