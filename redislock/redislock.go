// Package redislock keeps locks in Redis or Valkey: one server, Sentinel or Cluster, over
// the program's own go-redis client.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redislock.New(client, nil)
//	locks := dlock.New(store, nil)
//
// The protocol [Redisson], the default, shares locks with Java's Redisson: its RLock, fenced
// lock, fair lock and read-write lock exclude dlock and are excluded by it. Each release wakes the
// other's waiters, except that a waiter of Java's fair lock is woken only by a holder that uses
// dlock.WithFair, and a holder of Java's fair lock wakes only waiters that do. Shared locks are the
// read lock of RReadWriteLock. Permits are dlock's own.
// The protocol [Plain] shares locks with the programs that use SET NX PX on the lock's name:
// redsync, bsm/redislock, redis-py and many more.
//
// # What Redis cannot promise
//
// Redis counts expiry by its wall clock. It may lose what it has acknowledged: by eviction, by
// a restart unless every write is synced, by a failover. Then a lock can have two holders.
// Options.Replicas makes the failover case less likely, never impossible. In all these cases
// tokens keep rising as long as the server's clock does not step back, so a resource that
// checks the token stays safe.
package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/redis/go-redis/v9"
)

// The words of this package: a server is one process of Redis. Servers in cluster mode are a
// cluster. A cluster divides all keys into hash slots. The server that has a hash slot is its
// master, and replicas copy a master. A sharded channel is at the master of its hash slot, other
// channels are at all servers. A script may use keys of one hash slot only.
//
// The way of a call: Store, route (to which server), sender (in which pipeline), go-redis.

// Protocol is how locks are written, which decides what other programs share them.
type Protocol int

// The protocols. All programs that share a lock have to use the same one.
const (
	// Redisson writes locks as Java's Redisson does. It offers fair locks, shared locks and
	// permits.
	Redisson Protocol = iota
	// Plain writes a lock as a string, by SET NX PX. Only dlock's own releases wake
	// waiters. While another program holds the lock, dlock polls.
	Plain
)

func (p Protocol) String() string {
	if p != Redisson && p != Plain {
		return fmt.Sprintf("protocol %d", int(p))
	}
	return [...]string{Redisson: "redisson", Plain: "plain"}[p]
}

// Options of a store. The zero value is fine.
type Options struct {
	Protocol Protocol

	// Replicas is how many replicas have to acknowledge each acquisition and renewal, by
	// the WAIT command. It makes it unlikely that a failover loses a lock, not impossible. With
	// fewer than the master has, a planned failover of Sentinel (SENTINEL FAILOVER) loses locks
	// that are granted while it runs.
	// If fewer replicas acknowledge, the acquisition fails with [ErrNotReplicated]. A waiter tries
	// again, as after any outage, and keeps the lock on the master from others meanwhile.
	Replicas int

	// ReplicaTimeout is how long to wait for the replicas; default one second. It has to be
	// shorter than the client's ReadTimeout.
	ReplicaTimeout time.Duration
}

// DefaultReplicaTimeout is used if Options.ReplicaTimeout is zero.
const DefaultReplicaTimeout = time.Second

// ErrNotReplicated means that fewer replicas than Options.Replicas acknowledged a call in time. The
// call has happened on the master. After Acquire and AcquireAll the caller releases the lock, as
// after every failure with an unknown outcome. It wraps driver.ErrUnreachable.
var ErrNotReplicated = fmt.Errorf("%w: not acknowledged by enough replicas", driver.ErrUnreachable)

// Store keeps locks in Redis. Create one with [New] or [Open].
type Store struct {
	client       redis.UniversalClient
	clustered    atomic.Bool // the servers are in cluster mode
	clusterKnown atomic.Bool // clustered is final, unless a server says CROSSSLOT

	protocol Protocol
	step     uint64 // tokens of a grant
	scripts  *scripts
	replicas int

	route      *route
	ackedRoute *route // for commands that replicas acknowledge; equal to route without Replicas
	clock      serverClock
	general    *subscriptions // to all channels that are not sharded

	watches      javaRWWatches
	writerPlaces ownerValues   // exclusive requests, not fair, that may have a place in the sorted set writers
	unconfirmed  ownerValues   // proposed tokens that the caller must not get
	drawn        drawnTokens   // of names that were locked lately
	attempts     *attempts.Log // acquisitions of unknown outcome

	owned    io.Closer       // the client that Close closes; nil if it is the caller's
	location driver.Location // of a store that Open made
	closed   atomic.Bool
}

// New returns a store over a client of one server, of Sentinel (redis.NewFailoverClient) or of
// Cluster. The client stays the caller's: Close does not close it. A nil opts is fine. New makes
// no calls.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	return newStore(client, cmp.Or(opts, &Options{}), tokenStep)
}

func newStore(client redis.UniversalClient, opts *Options, step uint64) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("client is nil")
	case isRing(reflect.ValueOf(client)):
		return nil, fmt.Errorf("%w: a Ring moves keys to another server when one is down, and a lock could have two holders", driver.ErrUnsupported)
	case opts.Protocol != Redisson && opts.Protocol != Plain:
		return nil, fmt.Errorf("%w: unknown %v (want Redisson or Plain)", driver.ErrUnsupported, opts.Protocol)
	case opts.Replicas < 0 || opts.ReplicaTimeout < 0:
		return nil, fmt.Errorf("options Replicas (%d) and ReplicaTimeout (%v) cannot be negative", opts.Replicas, opts.ReplicaTimeout)
	}
	s := &Store{
		client:   client,
		protocol: opts.Protocol,
		step:     step,
		scripts:  newScripts(opts.Protocol, step),
		drawn:    drawnTokens{step: step},
		replicas: opts.Replicas,
	}
	s.route = newRoute(client, &s.clustered, 0, 0)
	s.general = newSubscriptions(s.route.tasks, client.Subscribe, false)
	s.clustered.Store(s.route.cluster != nil)
	s.clusterKnown.Store(s.route.cluster != nil)
	s.ackedRoute = s.route
	if s.replicas > 0 {
		timeout := cmp.Or(opts.ReplicaTimeout, DefaultReplicaTimeout)
		if limit := s.route.viaClient.readTimeout; limit > 0 && timeout >= limit {
			return nil, fmt.Errorf("option ReplicaTimeout (%v) has to be shorter than the client's ReadTimeout (%v)", timeout, limit)
		}
		s.ackedRoute = newRoute(client, &s.clustered, s.replicas, timeout)
	}
	s.attempts = attempts.New(s.undo)
	return s, nil
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           "redis",
		Fencing:         driver.FencingClockBound,
		TokenStep:       s.step,
		Fair:            s.protocol == Redisson,
		Shared:          s.protocol == Redisson,
		Limits:          s.protocol == Redisson,
		Reaction:        300 * time.Microsecond,
		MinTTL:          10 * time.Millisecond,
		Granularity:     time.Millisecond,
		SurvivesRestart: true,
	}
}

// Close ends the store's background work. If the server does not answer, it waits for about two
// seconds, and for a call that is under way up to the client's ReadTimeout. A client that was given
// to New stays open.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.general.close(driver.ErrClosed)
	_ = s.attempts.Close() // what it cannot undo expires
	s.route.close()
	if s.ackedRoute != s.route {
		s.ackedRoute.close()
	}
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// begin returns an error if the store is closed, ctx is done, or it is not known whether the server
// is in cluster mode. The first call asks the server.
func (s *Store) begin(ctx context.Context) error {
	switch {
	case s.closed.Load():
		return driver.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if err := s.learnClusterMode(ctx); err != nil {
		return driver.NotSent(err)
	}
	return nil
}

// millis rounds up: a lock never lasts less than was promised.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
