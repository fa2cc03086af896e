package etcdlock

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// conn sends requests: over the client, which takes the members in turn, or over a connection to one
// member that the store dialled itself because a member stopped answering. gRPC notices that only by
// keep-alives, which a client has if its program asked for them, and not in less than ten seconds.
type conn struct {
	grpc    *grpc.ClientConn
	kv      clientv3.KV
	watcher clientv3.Watcher
	leaser  pb.LeaseClient
	status  pb.MaintenanceClient

	dialled bool            // by the store, to one member
	ctx     context.Context // ends when the connection is replaced
	cancel  context.CancelFunc
}

// clientConn returns a conn that sends requests over the client.
func (s *Store) clientConn() *conn {
	return s.newConn(&conn{grpc: s.client.ActiveConnection(), kv: s.client, watcher: s.client, leaser: clientv3.RetryLeaseClient(s.client)})
}

func (s *Store) newConn(c *conn) *conn {
	c.status = pb.NewMaintenanceClient(c.grpc)
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// close ends the watches and the unanswered calls of a connection that is used no more.
func (c *conn) close() {
	c.cancel()
	if c.dialled {
		_ = c.grpc.Close() // nothing is sent over it any more
	}
}

const (
	// callLimit bounds every request. etcd itself gives up after about seven seconds.
	callLimit = 10 * time.Second
	// answerLimit is how long a member has to answer before another member is asked, or before the
	// connection is examined.
	answerLimit = 1500 * time.Millisecond
	// reconnectLimit is how long a call waits for a connection that was lost.
	reconnectLimit = 300 * time.Millisecond
)

// ensureConnected returns why no request can be sent, or nil. It connects again if need be.
func (s *Store) ensureConnected(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := s.conn.Load()
	if c.grpc.GetState() == connectivity.Ready {
		return nil
	}
	err := s.connect(ctx, c)
	if err != nil && c.dialled && ctx.Err() == nil { // the client knows other members
		s.replace(c, s.clientConn())
		return s.ensureConnected(ctx)
	}
	return err
}

// connect connects again, or returns why that failed. The calls of etcd's client would wait for a
// connection without saying why. A connection that failed before is tried again at once, not when
// the client would.
func (s *Store) connect(ctx context.Context, c *conn) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if c.grpc.GetState() == connectivity.TransientFailure {
		c.grpc.ResetConnectBackoff()
		limited, cancel := context.WithTimeout(ctx, reconnectLimit)
		defer cancel()
		c.grpc.WaitForStateChange(limited, connectivity.TransientFailure)
	}
	_, err := c.status.Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	if status.Code(err) == codes.Unavailable || ctx.Err() != nil {
		return s.explain(ctx, err)
	}
	return nil // any other error is an answer
}

// retry calls do until a try is answered, for up to callLimit. It tries again when the connection was
// replaced and, if there are several members, after answerLimit: another member may answer. A try
// without an answer goes on meanwhile, because the servers may be slow. After more than one try the
// server may carry out do again, also later.
func retry[T any](ctx context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (reply T, tries int, err error) {
	return retryWhile(ctx, ctx, s, do)
}

// retryWhile is a retry that does not try again after wanted has ended. The first try, which is nearly
// always the only one, needs no other goroutine.
func retryWhile[T any](ctx, wanted context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (reply T, tries int, err error) {
	unanswered, cancel := context.WithCancel(ctx) // without a deadline: see callContextLocked
	defer cancel()
	r := &request[T]{s, ctx, wanted, unanswered, cancel, do, make(chan answer[T], 1)}
	c := s.conn.Load()
	ended := make(chan struct{})
	late := time.AfterFunc(answerLimit, func() {
		defer close(ended)
		reply, tries, err = r.tryAgain(c)
	})
	first, failure := ask(unanswered, s, c, do)
	inTime := late.Stop()
	if inTime && (failure == nil || s.conn.Load() == c) {
		return first, 1, failure
	}
	r.answered(answer[T]{1, c, first, failure})
	if inTime {
		return r.tryAgain(c)
	}
	<-ended
	return reply, tries, err
}

// request is what the tries of a retry have in common.
type request[T any] struct {
	store       *Store
	ctx, wanted context.Context
	unanswered  context.Context // of the tries
	cancel      context.CancelFunc
	do          func(ctx context.Context, c *conn) (T, error)
	answers     chan answer[T] // with room for one
}

// answer is what a try returned over a connection.
type answer[T any] struct {
	try   int
	conn  *conn
	reply T
	err   error
}

func (r *request[T]) answered(a answer[T]) {
	select {
	case r.answers <- a:
	case <-r.unanswered.Done():
	}
}

// tryAgain makes the tries after the first over c, which is late, or failed because c was replaced.
func (r *request[T]) tryAgain(c *conn) (reply T, tries int, err error) {
	s := r.store
	var calls sync.WaitGroup
	defer calls.Wait()
	defer r.cancel()
	limit := time.NewTimer(callLimit - answerLimit)
	defer limit.Stop()
	late := time.NewTimer(0)
	defer late.Stop()
	several := len(s.client.Endpoints()) > 1
	for tries = 1; ; tries++ {
		var replaced <-chan struct{}
		for again := false; !again; {
			select {
			case a := <-r.answers:
				again = a.try == tries // an earlier one that failed proves nothing
				if a.err == nil || again && s.conn.Load() == a.conn {
					return a.reply, tries, a.err
				}
			case <-late.C:
				s.examine(c)
				again, replaced = several, c.ctx.Done()
			case <-replaced:
				again = true
			case <-limit.C:
				return reply, tries, fmt.Errorf("no answer within %v", callLimit)
			case <-r.ctx.Done():
				return reply, tries, context.Cause(r.ctx)
			}
		}
		if r.wanted.Err() != nil {
			return reply, tries, context.Cause(r.wanted)
		}
		c = s.conn.Load()
		try, over := tries+1, c
		calls.Add(1)
		s.workers.Go(func() {
			defer calls.Done()
			reply, err := ask(r.unanswered, s, over, r.do)
			r.answered(answer[T]{try, over, reply, err})
		})
		late.Reset(answerLimit)
	}
}

// ask calls do. A learner rejects it: then another member is asked.
func ask[T any](ctx context.Context, s *Store, c *conn, do func(ctx context.Context, c *conn) (T, error)) (reply T, err error) {
	for range 2 * len(s.client.Endpoints()) { // other calls may take the turns of the other members
		if reply, err = do(ctx, c); !isError(err, errLearner) {
			break
		}
		s.examine(c)
	}
	return reply, err
}

// examine checks in the background a connection over which a call was not answered, or was answered
// by a learner. If it leads to a member that does not serve requests, a new connection to a member
// that does replaces it.
func (s *Store) examine(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.Load() != c || s.examining {
		return
	}
	s.examining = s.backgroundLocked(func() {
		if s.replaceable() {
			if next := s.betterThan(c); next != nil {
				s.replace(c, next)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.examining = false
	})
}

// replace makes later calls use another connection.
func (s *Store) replace(old, next *conn) {
	if s.conn.CompareAndSwap(old, next) {
		old.close()
	} else {
		next.close()
	}
}

// replaceable reports whether the store can send the client's requests over a connection of its
// own. It cannot if the program wrapped the client's KV or Watcher, as etcd's package namespace
// does to change keys.
func (s *Store) replaceable() bool {
	return reflect.TypeOf(s.client.KV) == reflect.TypeOf(clientv3.NewKV(s.client)) &&
		reflect.TypeOf(s.client.Watcher) == reflect.TypeOf(clientv3.NewWatcher(s.client))
}

// betterThan returns a connection to the member that serves requests first, or nil if all members
// that c leads to serve requests, or none does. The client leads to all endpoints.
func (s *Store) betterThan(c *conn) *conn {
	endpoints := s.client.Endpoints()
	members := len(endpoints) // gRPC asks one after the other
	if c.dialled {
		members = 1
	}
	ctx, cancel := context.WithTimeout(s.ctx, answerLimit)
	defer cancel()
	var calls sync.WaitGroup
	var bad atomic.Bool
	var first atomic.Pointer[conn]
	for range members {
		calls.Go(func() {
			if serves, broken := s.serves(ctx, c); !serves && !broken { // gRPC connects again by itself
				bad.Store(true)
			}
		})
	}
	for _, endpoint := range endpoints {
		calls.Go(func() {
			next, broken := s.dialMember(ctx, endpoint)
			if next == nil && !broken && !c.dialled {
				bad.Store(true)
			}
			if next != nil && !first.CompareAndSwap(nil, next) {
				next.close()
			}
		})
	}
	calls.Wait()
	next := first.Load()
	if next != nil && !bad.Load() {
		next.close()
		return nil
	}
	return next
}

// dialMember returns a connection to a member, or nil if the member does not serve requests. broken
// reports whether there is no connection to it.
func (s *Store) dialMember(ctx context.Context, endpoint string) (c *conn, broken bool) {
	g, err := s.client.Dial(endpoint)
	if err != nil {
		return nil, true
	}
	c = s.newConn(&conn{
		grpc:    g,
		kv:      clientv3.NewKVFromKVClient(pb.NewKVClient(g), s.client),
		watcher: clientv3.NewWatchFromWatchClient(pb.NewWatchClient(g), s.client),
		leaser:  pb.NewLeaseClient(g),
		dialled: true,
	})
	serves, broken := s.serves(ctx, c)
	if !serves {
		c.close()
		return nil, broken
	}
	return c, false
}

// serves reports whether a member serves requests that need a leader, which a learner does not, or
// that the connection is broken. An error is an answer, too.
func (s *Store) serves(ctx context.Context, c *conn) (serves, broken bool) {
	key := []byte(s.queuePrefix("dlock")) // a user may have no permission for others
	_, err := pb.NewKVClient(c.grpc).Range(ctx, &pb.RangeRequest{Key: key, CountOnly: true})
	switch {
	case isError(err, errLearner), ctx.Err() != nil:
		return false, false
	case status.Code(err) == codes.Unavailable:
		return false, true
	}
	return true, false
}
