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

// retry calls do, and for up to callLimit calls it again if one of several members did not answer
// in time or the connection was replaced. The server may carry it out twice.
func retry[T any](ctx context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (T, error) {
	for start := time.Now(); ; {
		reply, again, err := once(ctx, s, do)
		switch {
		case !again:
			return reply, err
		case time.Since(start) >= callLimit:
			return reply, fmt.Errorf("no answer within %v", callLimit)
		}
	}
}

// once calls do, and reports whether to call it again: no answer came in time, and another member or
// connection may give one.
func once[T any](ctx context.Context, s *Store, do func(ctx context.Context, c *conn) (T, error)) (reply T, again bool, err error) {
	c := s.conn.Load()
	var limited context.Context
	var cancel context.CancelFunc
	if len(s.client.Endpoints()) > 1 {
		limited, cancel = context.WithTimeout(ctx, answerLimit)
	} else { // without a deadline: see callContextLocked
		limited, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(answerLimit, func() {
			s.examine(c)
			c.cancelUnanswered(limited, cancel)
		}).Stop()
	}
	defer cancel()
	if reply, err = do(limited, c); err == nil {
		return reply, false, nil
	}
	if limited.Err() != nil {
		s.examine(c)
	}
	return reply, ctx.Err() == nil && (limited.Err() != nil || s.conn.Load() != c), err
}

// cancelUnanswered ends a call, which began answerLimit ago, when callLimit has passed or c is
// replaced.
func (c *conn) cancelUnanswered(call context.Context, cancel context.CancelFunc) {
	stop := context.AfterFunc(c.ctx, cancel)
	limit := time.AfterFunc(callLimit-answerLimit, cancel)
	context.AfterFunc(call, func() { stop(); limit.Stop() })
}

// examine checks in the background a connection over which a call was not answered. If no member
// answers over it, and one answers over a new connection, the new connection replaces it.
func (s *Store) examine(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.Load() != c || s.examining {
		return
	}
	s.examining = s.backgroundLocked(func() {
		if s.needsReplacement(c) && s.replaceable() {
			if next := s.dialAny(); next != nil {
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

// needsReplacement reports whether no member answers over a connection. It returns false for a
// connection that gRPC knows to be broken: gRPC connects again by itself.
func (s *Store) needsReplacement(c *conn) bool {
	members := 1
	if !c.dialled {
		members = len(s.client.Endpoints()) // gRPC asks one after the other
	}
	var calls sync.WaitGroup
	var answered atomic.Bool
	ctx, cancel := context.WithTimeout(s.ctx, answerLimit)
	defer cancel()
	for range members {
		calls.Go(func() {
			_, err := c.status.Status(ctx, &pb.StatusRequest{})
			if err == nil || ctx.Err() == nil {
				answered.Store(true)
				cancel() // ends the other calls
			}
		})
	}
	calls.Wait()
	return !answered.Load()
}

// replaceable reports whether the store can send the client's requests over a connection of its
// own. It cannot if the program wrapped the client's KV or Watcher, as etcd's package namespace
// does to change keys.
func (s *Store) replaceable() bool {
	return reflect.TypeOf(s.client.KV) == reflect.TypeOf(clientv3.NewKV(s.client)) &&
		reflect.TypeOf(s.client.Watcher) == reflect.TypeOf(clientv3.NewWatcher(s.client))
}

// dialAny returns a connection to the member that answers first, or nil.
func (s *Store) dialAny() *conn {
	ctx, cancel := context.WithTimeout(s.ctx, answerLimit)
	defer cancel()
	var dials sync.WaitGroup
	var first atomic.Pointer[conn]
	for _, endpoint := range s.client.Endpoints() {
		dials.Go(func() {
			switch c := s.dialMember(ctx, endpoint); {
			case c == nil:
			case first.CompareAndSwap(nil, c):
				cancel() // ends the other dials
			default:
				c.close()
			}
		})
	}
	dials.Wait()
	return first.Load()
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
