package etcdlock

import (
	"cmp"
	"context"
	"iter"
	"slices"
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
	return s.list(ctx, s.prefix+escaper.Replace(prefix))
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	for info, err := range s.list(ctx, s.queuePrefix(name)) {
		return info, err == nil, err
	}
	return driver.Info{}, false, nil
}

// list yields the holders whose keys begin with start, those of a name in the order of their
// tokens. An error is the last thing it yields.
func (s *Store) list(ctx context.Context, start string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		known := make(map[int64]time.Duration)
		for found, err := range s.keysByName(ctx, start) {
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			prefix := s.queuePrefix(found.name)
			all := holders(prefix, found.keys)
			for _, kv := range all {
				left, err := s.timeLeft(ctx, kv.Lease, known)
				if err != nil {
					yield(driver.Info{}, err)
					return
				}
				if left < 0 {
					continue // the etcd lease has ended
				}
				info := driver.Info{
					Name:      found.name,
					Mode:      modeOf(prefix, string(kv.Key), kv.Value),
					Token:     tokenOf(kv.CreateRevision),
					Holder:    driver.DecodeHolder(string(kv.Value)),
					Remaining: left,
					Waiters:   len(found.keys) - len(all),
				}
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

// holders sorts the keys of a name by their creation and returns those that have the lock: the
// first, and those behind it that it admits.
func holders(prefix string, kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	mode := func(kv *mvccpb.KeyValue) driver.Mode { return modeOf(prefix, string(kv.Key), kv.Value) }
	first, n := mode(kvs[0]), 1
	for n < len(kvs) && (first.Shared || n < first.Limit) && mode(kvs[n]) == first {
		n++
	}
	return kvs[:n]
}

// nameKeys are the keys of a name, of its holders and its waiters.
type nameKeys struct {
	name string
	keys []*mvccpb.KeyValue
}

// pageSize is how many keys are read at a time.
const pageSize = 1000

// keysByName yields the names whose keys begin with start. An error is the last thing it yields.
func (s *Store) keysByName(ctx context.Context, start string) iter.Seq2[nameKeys, error] {
	return func(yield func(nameKeys, error) bool) {
		err := s.ensureConnected(ctx)
		end := clientv3.GetPrefixRangeEnd(start)
		if start == "" {
			start, end = "\x00", "\x00" // all keys
		}
		var current nameKeys
		for more := err == nil; more; {
			var reply *clientv3.GetResponse
			if reply, err = s.get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(pageSize)); err != nil {
				err = s.explain(ctx, err)
				break
			}
			for _, kv := range reply.Kvs { // in their order: the keys of a name follow each other
				name, ok := s.nameOf(string(kv.Key), kv.Lease)
				if !ok {
					continue
				}
				if name != current.name {
					if current.keys != nil && !yield(current, nil) {
						return
					}
					current = nameKeys{name: name}
				}
				current.keys = append(current.keys, kv)
			}
			if more = reply.More && len(reply.Kvs) > 0; more {
				start = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
			}
		}
		if err != nil || current.keys != nil {
			yield(current, err)
		}
	}
}

func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	reply, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (*clientv3.GetResponse, error) { return c.kv.Get(ctx, key, opts...) })
	return reply, err
}

// timeLeft returns the time left of an etcd lease. It is negative if the etcd lease has ended.
// known has the etcd leases that the server was asked for.
func (s *Store) timeLeft(ctx context.Context, id int64, known map[int64]time.Duration) (time.Duration, error) {
	if left, ok := known[id]; ok {
		return left, nil
	}
	reply, _, err := retry(ctx, s, func(ctx context.Context, c *conn) (*pb.LeaseTimeToLiveResponse, error) {
		return c.leaser.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id}, grpc.WaitForReady(true))
	})
	if err != nil {
		return 0, s.explain(ctx, err)
	}
	known[id] = time.Duration(reply.TTL) * time.Second
	return known[id], nil
}
