package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/internal/workerpool"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options of a store. The zero value is fine.
type Options struct {
	// Prefix begins every key, as in "locks/". All programs that share locks use the same
	// prefix. The etcd user needs read and write permission for the keys that begin with it.
	Prefix string
}

// Store keeps locks in etcd. Create one with [New] or [Open].
type Store struct {
	client      *clientv3.Client
	prefix      string
	clock       *clock.Clock
	conn        atomic.Pointer[conn] // over which requests are sent
	watchStream atomic.Uint64        // the number of the stream in which watches are opened: see inStream
	maxOps      atomic.Int64         // how many operations a transaction has at most
	owned       io.Closer            // the client of a store that Open made; nil for New
	location    driver.Location      // of a store that Open made

	workers   *workerpool.Pool
	ctx       context.Context // of the background work; ends with Close
	cancel    context.CancelFunc
	work      sync.WaitGroup // begun only while the store is not closed
	closeOnce sync.Once
	closeErr  error // of Close

	alarm *alarm.Alarm // wakes the janitor

	mu           sync.Mutex // held by the callers of methods whose names end with Locked
	closed       bool
	calls        context.Context // of the calls that began since callsSince: see callContextLocked
	callsSince   time.Time
	leases       map[*lease]struct{}
	holds        map[holdID]*hold
	keys         map[string]*hold // the holds by their keys
	watches      map[watchID]*nameWatch
	waiters      map[holdID]*waiter
	numberedKeys uint64 // keys that got a number so far
	examining    bool   // a goroutine examines the connection
}

// idleWorkers is how many goroutines stay for the next calls.
const idleWorkers = 64

// New returns a store over a client, which stays the caller's: Close does not close it. A nil
// opts is fine. New makes no calls.
//
// If the client's connection or one of several members stops answering, the store dials a server
// itself and goes on over its own connection. It cannot do that for a client whose KV or Watcher was replaced, as etcd's
// package namespace does: set its DialKeepAliveTime instead, at best to ten seconds, the least that
// gRPC allows. Set it as well for a client with a user and a password: etcd's client asks for an
// auth token over its own connection before every renewal and every watch.
func New(client *clientv3.Client, opts *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("no client")
	}
	if len(client.Endpoints()) == 0 {
		return nil, errors.New("the client has no endpoints")
	}
	opts = cmp.Or(opts, &Options{})
	if strings.ContainsRune(opts.Prefix, 0) {
		return nil, errors.New("the prefix contains a NUL")
	}
	s := &Store{
		client:  client,
		prefix:  opts.Prefix,
		clock:   clock.New(),
		workers: workerpool.New(idleWorkers),
		alarm:   alarm.New(),
		leases:  make(map[*lease]struct{}),
		holds:   make(map[holdID]*hold),
		keys:    make(map[string]*hold),
		watches: make(map[watchID]*nameWatch),
		waiters: make(map[holdID]*waiter),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.conn.Store(s.clientConn())
	s.maxOps.Store(initialMaxOps)
	s.work.Go(func() { s.alarm.Run(s.ctx, s.clean) })
	return s, nil
}

// Format prints only the type: a store contains the owners of locks.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "etcdlock.Store") }

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:            "etcd",
		Fencing:          driver.FencingStrong,
		TokenStep:        tokenstep.Size,
		Fair:             true,
		Shared:           true,
		Limits:           true,
		Queues:           true,
		WatchesExpiry:    true,
		SessionBound:     true,
		ReportsLoss:      true,
		Reaction:         time.Millisecond,
		MinTTL:           minTTL,
		Granularity:      time.Second,
		SurvivesRestart:  true,
		SurvivesFailover: true,
	}
}

// closeLimit bounds the calls of Close. An etcd lease that it cannot revoke expires.
const closeLimit = 3 * time.Second

// Close implements driver.Store. It releases all locks that were acquired through the store. A
// client that was given to New stays open.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.endHolds()
		s.cancel()
		s.work.Wait()
		s.workers.Close()
		s.revokeAll()
		s.conn.Load().close()
		if s.owned != nil {
			s.closeErr = s.owned.Close()
		}
	})
	return s.closeErr
}

// endHolds lets the store grant nothing more, and tells all holders that they are about to lose their
// locks.
func (s *Store) endHolds() {
	var reports sync.WaitGroup
	s.mu.Lock()
	s.closed = true
	for _, h := range s.keys {
		if h.held && h.lost != nil {
			reports.Go(h.lost)
			h.lost = nil
		}
	}
	s.mu.Unlock()
	reports.Wait()
}

// revokeAll revokes all etcd leases, and with them all locks of the store.
func (s *Store) revokeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var all sync.WaitGroup
	s.mu.Lock()
	for l := range s.leases {
		if l.id != 0 {
			all.Go(func() { s.revoke(ctx, l) })
		}
	}
	s.mu.Unlock()
	all.Wait()
}

// backgroundLocked runs f in the background and returns true, unless the store is closed. Close
// waits for f.
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
