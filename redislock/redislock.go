package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/redis/go-redis/v9"
)

// Protocol says how locks are written, and with whom they are shared.
type Protocol int

// The protocols. All programs that share a lock have to use the same one.
const (
	// Redisson writes locks as Java's Redisson does. It offers fair locks.
	Redisson Protocol = iota
	// Plain writes a lock as a string, by SET NX PX. Only dlock's own releases
	// wake waiters; where another program has the lock, dlock polls.
	Plain
)

func (p Protocol) String() string {
	switch p {
	case Redisson:
		return "redisson"
	case Plain:
		return "plain"
	default:
		return fmt.Sprintf("protocol %d", int(p))
	}
}

// Options of a store. The zero value is fine.
type Options struct {
	Protocol Protocol

	// Replicas is how many replicas have to acknowledge each acquisition and
	// renewal, by the WAIT command. It makes it unlikely that a failover loses
	// a lock, not impossible. Where fewer acknowledge, an acquisition is given
	// back and fails with [ErrNotReplicated].
	Replicas int

	// ReplicaTimeout is how long to wait for them; default one second. It has
	// to be shorter than the client's ReadTimeout.
	ReplicaTimeout time.Duration
}

// DefaultReplicaTimeout is the wait for replicas unless Options.ReplicaTimeout says
// otherwise.
const DefaultReplicaTimeout = time.Second

// ErrNotReplicated says that fewer replicas than Options.Replicas acknowledged the
// lock in time. It was given back.
var ErrNotReplicated = errors.New("not acknowledged by enough replicas")

// Store keeps locks in Redis. Create one with [New].
type Store struct {
	client    redis.UniversalClient
	cluster   atomic.Bool // keys are in slots
	modeKnown atomic.Bool // cluster is so for good, unless a server says CROSSSLOT

	protocol Protocol
	scripts  *scripts
	replicas int

	route   *route
	acked   *route // for what replicas have to acknowledge; the same if that is nothing
	clock   serverClock
	holders holderCache
	news    news

	doubts   doubts
	attempts *attempts.Log // whose outcome is unknown

	owned  io.Closer // a client that Close closes; nil if it is the caller's
	closed atomic.Bool
}

// New returns a store over a client of one server, of Sentinel
// (redis.NewFailoverClient) or of Cluster. The client stays the caller's: Close
// does not close it. A nil opts is fine. It makes no calls.
func New(client redis.UniversalClient, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	_, cluster := client.(clusterClient)
	switch {
	case client == nil:
		return nil, errors.New("no client")
	case isRing(client):
		return nil, fmt.Errorf("%w: a Ring moves keys to another server when one is down, and two could hold a lock", driver.ErrUnsupported)
	case opts.Protocol != Redisson && opts.Protocol != Plain:
		return nil, fmt.Errorf("%w: %v", driver.ErrUnsupported, opts.Protocol)
	case opts.Replicas < 0 || opts.ReplicaTimeout < 0:
		return nil, fmt.Errorf("options Replicas (%d) and ReplicaTimeout (%v) cannot be negative", opts.Replicas, opts.ReplicaTimeout)
	}
	s := &Store{
		client:   client,
		protocol: opts.Protocol,
		scripts:  newScripts(opts.Protocol),
		replicas: opts.Replicas,
		route:    newRoute(client, 0, 0),
	}
	s.cluster.Store(cluster)
	s.modeKnown.Store(cluster)
	s.acked = s.route
	if s.replicas > 0 {
		timeout := cmp.Or(opts.ReplicaTimeout, DefaultReplicaTimeout)
		if limit := s.route.all.readTimeout; limit > 0 && timeout >= limit {
			return nil, fmt.Errorf("option ReplicaTimeout (%v) has to be shorter than the client's ReadTimeout (%v)", timeout, limit)
		}
		s.acked = newRoute(client, s.replicas, timeout)
	}
	s.attempts = attempts.New(s.undo)
	s.news.init(client)
	return s, nil
}

// Traits says what Redis promises.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           "redis",
		Fencing:         driver.FencingClockBound,
		Fair:            s.protocol == Redisson,
		Handover:        300 * time.Microsecond,
		MinTTL:          10 * time.Millisecond,
		Granularity:     time.Millisecond,
		SurvivesRestart: true,
	}
}

// Close ends what the store started and waits for it, but not for long if the server
// does not answer. A client that was given to New stays open.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.news.close()
	_ = s.attempts.Close() // what it could not undo expires
	senders := s.route.close()
	if s.acked != s.route {
		senders = append(senders, s.acked.close()...)
	}
	closeSenders(senders)
	s.route.join()
	s.acked.join()
	if s.owned == nil {
		return nil
	}
	return s.owned.Close()
}

// usable says whether a call may begin. The first call asks the server for its mode.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.learnMode(ctx)
}

func (s *Store) counterOf(key string) string {
	if s.protocol == Plain {
		return beside(plainCounter, key)
	}
	return beside(redissonCounter, key)
}

func (s *Store) channelOf(key string) string {
	if s.protocol == Plain {
		return beside(plainChannel, key)
	}
	return beside(redissonChannel, key)
}

// queueOf returns the keys of the queue, none where there is no queue.
func (s *Store) queueOf(key string) []string {
	if s.protocol == Plain {
		return nil
	}
	return []string{beside(redissonQueue, key), beside(redissonTimeouts, key)}
}

// millis rounds up: a lock never lasts less than was promised.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
