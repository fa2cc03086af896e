package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// peer is another library that locks with SET NX PX.
type peer interface {
	// acquire tries once, or waits for the lock if later is true. The channel
	// receives one value.
	acquire(t testing.TB, name string, ttl time.Duration, later bool) <-chan peerLock
}

// peerLock is the outcome of a peer's attempt: a lock unless err is set.
type peerLock struct {
	err    error // errRefused if the lock is held
	at     time.Time
	extend func(ttl time.Duration) error
	unlock func() error
	began  func() time.Time // the time before the unlock
}

var errRefused = errors.New("the lock is held")

// poll is how often the peers in Go poll.
const poll = 20 * time.Millisecond

// peersInGo are the other libraries in Go.
var peersInGo = map[string]func(t testing.TB, clients ...*redis.Client) peer{
	"redsync":       newRedsync,
	"bsm-redislock": newBSM,
}

// inBackground calls acquire with the limits of the test.
func inBackground(t testing.TB, acquire func(ctx context.Context) peerLock) <-chan peerLock {
	done := make(chan peerLock, 1)
	go func() {
		lock := acquire(t.Context())
		lock.at = time.Now()
		if unlock := lock.unlock; unlock != nil {
			var began time.Time
			lock.unlock = func() error {
				began = time.Now()
				return unlock()
			}
			lock.began = func() time.Time { return began }
		}
		done <- lock
	}()
	return done
}

type redsyncPeer struct{ sync *redsync.Redsync }

func newRedsync(_ testing.TB, clients ...*redis.Client) peer {
	pools := make([]syncredis.Pool, len(clients))
	for i, client := range clients {
		pools[i] = goredis.NewPool(client)
	}
	return redsyncPeer{redsync.New(pools...)}
}

func (p redsyncPeer) acquire(t testing.TB, name string, ttl time.Duration, later bool) <-chan peerLock {
	tries := 1
	if later {
		tries = 1000
	}
	return inBackground(t, func(ctx context.Context) peerLock {
		// redsync derives the timeout of a single try from the expiry.
		mutex := p.sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(tries),
			redsync.WithRetryDelay(poll), redsync.WithTimeoutFactor(0.5))
		if err := mutex.LockContext(ctx); err != nil {
			if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
				err = errRefused
			}
			return peerLock{err: err}
		}
		return peerLock{
			unlock: func() error {
				_, err := mutex.Unlock()
				return err
			},
			extend: func(ttl time.Duration) error {
				redsync.WithExpiry(ttl).Apply(mutex)
				_, err := mutex.Extend()
				return err
			},
		}
	})
}

type bsmPeer struct{ client *bsm.Client }

func newBSM(_ testing.TB, clients ...*redis.Client) peer { return bsmPeer{bsm.New(clients[0])} }

func (p bsmPeer) acquire(t testing.TB, name string, ttl time.Duration, later bool) <-chan peerLock {
	retry := bsm.NoRetry()
	if later {
		retry = bsm.LimitRetry(bsm.LinearBackoff(poll), 1000)
	}
	return inBackground(t, func(ctx context.Context) peerLock {
		lock, err := p.client.Obtain(ctx, name, ttl, &bsm.Options{RetryStrategy: retry})
		switch {
		case errors.Is(err, bsm.ErrNotObtained):
			return peerLock{err: errRefused}
		case err != nil:
			return peerLock{err: err}
		}
		return peerLock{
			unlock: func() error { return lock.Release(context.Background()) },
			extend: func(ttl time.Duration) error { return lock.Refresh(context.Background(), ttl, nil) },
		}
	})
}

// peerLocks lets a peer acquire a free lock.
func peerLocks(t testing.TB, p peer, name string, ttl time.Duration) peerLock {
	t.Helper()
	return peerGets(t, p.acquire(t, name, ttl, false), wakeLimit)
}

// peerGets waits until a peer has its lock.
func peerGets(t testing.TB, later <-chan peerLock, limit time.Duration) peerLock {
	t.Helper()
	select {
	case lock := <-later:
		if lock.err != nil {
			t.Fatalf("the other program did not get the lock: %v", lock.err)
		}
		return lock
	case <-time.After(limit):
		t.Fatalf("the other program did not get the lock within %v", limit)
		return peerLock{}
	}
}

// peerMustRefuse checks that a peer does not get a lock that dlock holds.
func peerMustRefuse(t testing.TB, p peer, name string) {
	t.Helper()
	if lock := <-p.acquire(t, name, longTTL, false); !errors.Is(lock.err, errRefused) {
		t.Fatalf("the other program tried to get a lock that dlock has: %v; want errRefused", lock.err)
	}
}

func peerUnlocks(t testing.TB, lock peerLock) {
	t.Helper()
	if err := lock.unlock(); err != nil {
		t.Fatalf("the other program cannot unlock: %v", err)
	}
}
