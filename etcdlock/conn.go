package etcdlock

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// conn sends requests: over the client, or over a connection that the store dialled itself
// because the client's stopped answering. gRPC notices that only by keep-alives, which a client
// has if its program asked for them, and not in less than ten seconds.
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
	g := s.client.ActiveConnection()
	return s.newConn(&conn{grpc: g, kv: s.client, watcher: s.client, leaser: clientv3.RetryLeaseClient(s.client)})
}

func (s *Store) newConn(c *conn) *conn {
	c.status = pb.NewMaintenanceClient(c.grpc)
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// close ends the watches and the late calls of a connection that was replaced.
func (c *conn) close() {
	c.cancel()
	if c.dialled {
		_ = c.grpc.Close() // nothing is sent over it any more
	}
}

const (
	// callLimit bounds every call. etcd itself gives up after about seven seconds.
	callLimit = 10 * time.Second
	// answerLimit is how long a member has to answer before another member is asked, or before the
	// connection is examined.
	answerLimit = 1500 * time.Millisecond
	// reconnectLimit is how long a call waits for a connection that was lost.
	reconnectLimit = 300 * time.Millisecond
)

// usable returns why a call must not begin, or nil.
func (s *Store) usable(ctx context.Context) error {
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
		return s.usable(ctx)
	}
	return err
}

// connect returns why there is no connection. The calls of etcd's client would wait for one
// without saying why. A connection that failed before is tried again at once, not when the client
// would.
func (s *Store) connect(ctx context.Context, c *conn) error {
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

// try calls do, which may be carried out twice, and repeats it if one of several members did not
// answer in time or the connection was replaced.
func try[T any](ctx context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (T, error) {
	for {
		reply, again, err := tryOnce(ctx, s, do)
		if !again {
			return reply, err
		}
	}
}

// tryOnce calls do. again reports whether the answer did not come in time, and may come from another
// member or over another connection.
func tryOnce[T any](ctx context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (reply T, again bool, err error) {
	c := s.conn.Load()
	var limited context.Context
	var cancel context.CancelFunc
	if len(s.client.Endpoints()) > 1 {
		limited, cancel = context.WithTimeout(ctx, answerLimit)
	} else { // without a deadline: see callContext
		limited, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(answerLimit, func() {
			s.suspect(c)
			stop := context.AfterFunc(c.ctx, cancel)
			context.AfterFunc(limited, func() { stop() })
		}).Stop()
	}
	defer cancel()
	if reply, err = do(limited, c); err == nil {
		return reply, false, nil
	}
	if limited.Err() != nil {
		s.suspect(c)
	}
	return reply, ctx.Err() == nil && (limited.Err() != nil || s.conn.Load() != c), err
}

// suspect examines a connection over which a call went unanswered, in the background.
func (s *Store) suspect(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.Load() == c && !s.examining {
		s.examining = s.background(func() { s.examine(c) })
	}
}

// examine replaces a connection that does not answer by one that does. If the server answers over
// neither, examine changes nothing.
func (s *Store) examine(c *conn) {
	if !s.answers(c) && s.replaceable() {
		if next := s.dialAny(); next != nil {
			s.replace(c, next)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.examining = false
}

// replace makes later calls use another connection.
func (s *Store) replace(old, next *conn) {
	if s.conn.CompareAndSwap(old, next) {
		old.close()
	} else {
		next.close()
	}
}

// answers reports whether any member answers over a connection, or gRPC knows that it is broken
// and connects again by itself.
func (s *Store) answers(c *conn) bool {
	members := 1
	if !c.dialled {
		members = len(s.client.Endpoints()) // gRPC asks one after the other
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithTimeout(s.ctx, answerLimit)
	defer cancel()
	answered := make(chan bool, members)
	for range members {
		calls.Go(func() {
			_, err := c.status.Status(ctx, &pb.StatusRequest{})
			answered <- err == nil || ctx.Err() == nil
		})
	}
	for range members {
		if <-answered {
			return true
		}
	}
	return false
}

// replaceable reports whether the store can send the client's requests over a connection of its
// own. It cannot if the program wrapped the client's KV or Watcher, as etcd's package namespace
// does to change keys.
func (s *Store) replaceable() bool {
	return reflect.TypeOf(s.client.KV) == reflect.TypeOf(clientv3.NewKV(s.client)) &&
		reflect.TypeOf(s.client.Watcher) == reflect.TypeOf(clientv3.NewWatcher(s.client))
}

// dialAny returns a connection to the member that answers first, or nil.
func (s *Store) dialAny() (first *conn) {
	ctx, cancel := context.WithTimeout(s.ctx, answerLimit)
	defer cancel()
	endpoints := s.client.Endpoints()
	dialled := make(chan *conn, len(endpoints))
	for _, endpoint := range endpoints {
		go func() { dialled <- s.dialMember(ctx, endpoint) }()
	}
	for range endpoints {
		switch c := <-dialled; {
		case c == nil:
		case first == nil:
			first = c
			cancel()
		default:
			c.close()
		}
	}
	return first
}

// dialMember returns a connection to a member, or nil if it does not answer or has no leader.
func (s *Store) dialMember(ctx context.Context, endpoint string) *conn {
	g, err := s.client.Dial(endpoint)
	if err != nil {
		return nil
	}
	c := s.newConn(&conn{
		grpc:    g,
		kv:      clientv3.NewKVFromKVClient(pb.NewKVClient(g), s.client),
		watcher: clientv3.NewWatchFromWatchClient(pb.NewWatchClient(g), s.client),
		leaser:  pb.NewLeaseClient(g),
		dialled: true,
	})
	reply, err := c.status.Status(ctx, &pb.StatusRequest{})
	if ctx.Err() != nil || status.Code(err) == codes.Unavailable || err == nil && reply.Leader == 0 {
		c.close()
		return nil
	}
	return c // any other error is an answer
}
