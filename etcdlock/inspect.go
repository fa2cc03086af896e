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

// pageSize is how many keys are read at a time.
const pageSize = 1000

// List implements driver.Lister. It finds the locks of other programs too, and
// does not know since when a lock is held: etcd keeps no time. Keys that are no
// locks are read and left out, so that a prefix of its own is worth it in a server
// that is used for more.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		err := s.list(ctx, prefix, func(info driver.Info) bool { return yield(info, nil) })
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// list calls found for each lock, until that returns false.
func (s *Store) list(ctx context.Context, prefix string, found func(driver.Info) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	remaining := s.countdown()
	var current *line
	tell := func() (more bool, err error) {
		if current == nil {
			return true, nil
		}
		info, held, err := current.describe(ctx, remaining)
		return err == nil && (!held || found(info)), err
	}
	start := s.prefix + escaper.Replace(prefix)
	for page, err := range s.pages(ctx, start) {
		if err != nil {
			return err
		}
		for _, kv := range page {
			name, ok := s.nameIn(string(kv.Key), kv.Lease)
			if !ok {
				continue
			}
			if current != nil && current.name == name {
				current.add(kv)
				continue
			}
			if more, err := tell(); !more {
				return err
			}
			current = &line{name: name}
			current.add(kv)
		}
	}
	_, err := tell()
	return err
}

// pages yields the keys that begin with start, in order. An error is the last
// thing it yields.
func (s *Store) pages(ctx context.Context, start string) iter.Seq2[[]*mvccpb.KeyValue, error] {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		end := clientv3.GetPrefixRangeEnd(start)
		if start == "" {
			start, end = "\x00", "\x00" // everything
		}
		for {
			reply, err := s.get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
			if err != nil {
				yield(nil, s.failure(ctx, err))
				return
			}
			if !yield(reply.Kvs, nil) || !reply.More || len(reply.Kvs) == 0 {
				return
			}
			start = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
		}
	}
}

// get reads keys.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (reply *clientv3.GetResponse, err error) {
	err = s.try(ctx, func(ctx context.Context, c *conn) (err error) {
		reply, err = c.kv.Get(ctx, key, opts...)
		return err
	})
	return reply, err
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Info{}, false, err
	}
	queue := line{name: name}
	for page, err := range s.pages(ctx, s.queueOf(name)) {
		if err != nil {
			return driver.Info{}, false, err
		}
		for _, kv := range page {
			if _, ok := s.nameIn(string(kv.Key), kv.Lease); ok {
				queue.add(kv)
			}
		}
	}
	return queue.describe(ctx, s.countdown())
}

// line is the queue of a name.
type line struct {
	name  string
	first *mvccpb.KeyValue
	count int
}

func (l *line) add(kv *mvccpb.KeyValue) {
	if l.count++; l.first == nil || kv.CreateRevision < l.first.CreateRevision {
		l.first = kv
	}
}

// describe returns false if nobody has the lock any more.
func (l *line) describe(ctx context.Context, remaining func(context.Context, int64) (time.Duration, error)) (driver.Info, bool, error) {
	if l.first == nil {
		return driver.Info{}, false, nil
	}
	left, err := remaining(ctx, l.first.Lease)
	if err != nil || left < 0 {
		return driver.Info{}, false, err
	}
	return driver.Info{
		Name:      l.name,
		Token:     uint64(l.first.CreateRevision),
		Holder:    driver.DecodeHolder(string(l.first.Value)),
		Remaining: left,
		Waiters:   l.count - 1,
	}, true, nil
}

// countdown returns what tells how long a lease lasts, negative if it has ended.
// It asks once for each.
func (s *Store) countdown() func(ctx context.Context, id int64) (time.Duration, error) {
	known := make(map[int64]time.Duration)
	return func(ctx context.Context, id int64) (time.Duration, error) {
		if left, ok := known[id]; ok {
			return left, nil
		}
		var reply *pb.LeaseTimeToLiveResponse
		err := s.try(ctx, func(ctx context.Context, c *conn) (err error) {
			reply, err = c.leaser.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id}, grpc.WaitForReady(true))
			return err
		})
		if err != nil {
			return 0, s.failure(ctx, err)
		}
		known[id] = time.Duration(reply.TTL) * time.Second
		return known[id], nil
	}
}
