package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/workerpool"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Options of a store. The zero value is fine.
type Options struct {
	// Prefix begins every key, as in "locks/". All programs that share locks
	// have the same. A user of etcd needs to read and write what begins with it.
	Prefix string
}

// Store keeps locks in etcd. Create one with [New] or [Open].
type Store struct {
	client *clientv3.Client
	prefix string
	clock  *clock.Clock
	conn   atomic.Pointer[conn] // what requests are sent over
	stream atomic.Uint64        // in which watches are opened: see inStream
	owned  io.Closer            // a client that Close closes; nil if it is the caller's

	workers *workerpool.Pool
	ctx     context.Context // of all that goes on in the background
	cancel  context.CancelFunc
	work    sync.WaitGroup // begun only while not closed
	once    sync.Once
	err     error // of Close

	mu         sync.Mutex
	closed     bool
	calls      context.Context // of those that began since then
	callsSince time.Time
	leases     map[int64]*lease // for new locks, by TTL in seconds
	all        map[*lease]struct{}
	holds      map[identity]*hold
	keys       map[string]*hold // whose key it is, or was a moment ago
	topics     map[string]*topic
	waiting    map[identity]*subscription
	numbered   uint64           // keys that needed a number so far
	tending    bool             // the steward runs
	tendAt     time.Time        // when it looks next
	attention  chan struct{}    // makes it look now
	suspicions []func()         // called when the connection that is being examined was replaced
}

// identity is who asked for what. An owner asks for one name only, but nothing
// relies on it.
type identity struct {
	name  string
	owner driver.Owner
}

// idleWorkers is how many goroutines stay for the next calls.
const idleWorkers = 64

// New returns a store over a client, which stays the caller's: Close does not
// close it. A nil opts is fine. It makes no calls.
//
// If the client's connection dies in silence, the store dials the server itself and
// goes on over its own connection. A client with a namespace, whose KV or Watcher is not
// its own, needs DialKeepAliveTime instead; ten seconds are good, and the least that gRPC
// does. So does a client with a user and a password: etcd's client asks for a token over
// its own connection before every renewal and every watch, also over another connection.
func New(client *clientv3.Client, opts *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("no client")
	}
	if len(client.Endpoints()) == 0 {
		return nil, errors.New("the client has no endpoints")
	}
	if opts == nil {
		opts = &Options{}
	}
	if strings.ContainsRune(opts.Prefix, 0) {
		return nil, errors.New("the prefix contains a NUL")
	}
	s := &Store{
		client:    client,
		prefix:    opts.Prefix,
		clock:     clock.New(),
		workers:   workerpool.New(idleWorkers),
		leases:    make(map[int64]*lease),
		all:       make(map[*lease]struct{}),
		holds:     make(map[identity]*hold),
		keys:      make(map[string]*hold),
		topics:    make(map[string]*topic),
		waiting:   make(map[identity]*subscription),
		attention: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.conn.Store(s.clientConn())
	return s, nil
}

// Format prints no more than what it is: in it are the owners of locks.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "etcdlock.Store") }

// Traits says what etcd promises.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:            "etcd",
		Fencing:          driver.FencingStrong,
		Fair:             true,
		Queues:           true,
		WatchesExpiry:    true,
		SessionBound:     true,
		ReportsLoss:      true,
		Handover:         time.Millisecond,
		MinTTL:           minTTL,
		Granularity:      time.Second,
		SurvivesRestart:  true,
		SurvivesFailover: true,
	}
}

// closeLimit bounds what Close tells the server. What does not get through
// expires.
const closeLimit = 3 * time.Second

// Close gives up all locks that were acquired through the store, ends what it
// started and waits for it. A client that was given to New stays open.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		s.work.Wait()
		s.workers.Close()
		s.revokeAll()
		s.conn.Load().close()
		if s.owned != nil {
			s.err = s.owned.Close()
		}
	})
	return s.err
}

// revokeAll ends all leases, and with them whatever this store left.
func (s *Store) revokeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var all sync.WaitGroup
	s.mu.Lock()
	for l := range s.all {
		if l.id != 0 {
			all.Go(func() { s.revoke(ctx, l) })
		}
	}
	s.mu.Unlock()
	all.Wait()
}

// usable says whether a call may begin.
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
	err := s.meet(ctx, c)
	if err != nil && c.dialled && ctx.Err() == nil { // the client knows of other members
		s.replace(c, s.clientConn())
		return s.usable(ctx)
	}
	return err
}

// reconnectLimit is how long a call waits for a connection that was lost.
const reconnectLimit = 300 * time.Millisecond

// meet finds out why there is no connection. The calls of etcd's client wait for
// one and do not say; this one does, soon. A connection that failed before is
// tried again now, and not when the client would.
func (s *Store) meet(ctx context.Context, c *conn) error {
	if c.grpc.GetState() == connectivity.TransientFailure {
		c.grpc.ResetConnectBackoff()
		limited, cancel := context.WithTimeout(ctx, reconnectLimit)
		defer cancel()
		c.grpc.WaitForStateChange(limited, connectivity.TransientFailure)
	}
	_, err := c.status.Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	if status.Code(err) == codes.Unavailable || ctx.Err() != nil {
		return s.failure(ctx, err)
	}
	return nil // whatever else it says is an answer
}

// background runs f, unless the store is closed. Close waits for it.
func (s *Store) background(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backgroundLocked(f)
}

func (s *Store) backgroundLocked(f func()) bool {
	if s.closed {
		return false
	}
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		f()
	})
	return true
}
