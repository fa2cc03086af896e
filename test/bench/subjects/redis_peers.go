package subjects

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/dlock-go/dlock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// redislockWorkers are those of github.com/bsm/redislock.
func redislockWorkers(_ context.Context, c redis.UniversalClient, _ string) (func(string) Worker, error) {
	// The polling interval of redislock's own examples. The library leaves it to
	// its users.
	const every = 100 * time.Millisecond
	locks := redislock.New(c)
	opts := redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
	return func(name string) Worker {
		var held *redislock.Lock
		return Worker{
			Lock: func(ctx context.Context) (err error) {
				held, err = locks.Obtain(ctx, name, dlock.DefaultTTL, &opts)
				return err
			},
			Unlock: func(ctx context.Context) error { return held.Release(ctx) },
		}
	}, nil
}

// redsyncWorkers are those of github.com/go-redsync/redsync with its default
// settings.
func redsyncWorkers(_ context.Context, c redis.UniversalClient, _ string) (func(string) Worker, error) {
	return overRedsync(pool.NewPool(c)), nil
}

// openRedsyncRedlock opens redsync over several independent servers.
func openRedsyncRedlock(_ context.Context, at Place) (*Client, error) {
	var clients []*redis.Client
	var pools []redsyncredis.Pool
	for _, addr := range at.Addrs[1:] {
		c := redis.NewClient(&redis.Options{Addr: addr})
		clients, pools = append(clients, c), append(pools, pool.NewPool(c))
	}
	return &Client{Worker: workers(overRedsync(pools...)), Close: func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}}, nil
}

// overRedsync differs from redsync's defaults in that it does not give up after
// 32 attempts.
func overRedsync(pools ...redsyncredis.Pool) func(name string) Worker {
	locks := redsync.New(pools...)
	return func(name string) Worker {
		mutex := locks.NewMutex(name, redsync.WithTries(math.MaxInt))
		return Worker{
			Lock:   mutex.LockContext,
			Unlock: func(ctx context.Context) error { return released(mutex.UnlockContext(ctx)) },
		}
	}
}

// openRueidislock opens github.com/redis/rueidis/rueidislock with the settings
// that it recommends for one server of this version: one key, and no notification
// of its own changes.
func openRueidislock(_ context.Context, at Place) (*Client, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: at.Addrs[:1]},
		KeyMajority:    1,
		NoLoopTracking: true,
		// With the default of 20 ms an attempt is abandoned and its key
		// deleted without a notification on a busy machine, and the waiter
		// waits for ever.
		TryNextAfter: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]*atomic.Int32) // number of workers, by name
	newWorker := func(name string) Worker {
		if wanted[name] == nil {
			wanted[name] = new(atomic.Int32)
		}
		wanted[name].Add(1)
		w := &rueidislockWorker{locks: locks, name: name, wanted: wanted[name]}
		return Worker{w.lock, w.unlock}
	}
	return &Client{Worker: workers(newWorker), Close: func() error { locks.Close(); return nil }}, nil
}

type rueidislockWorker struct {
	locks  rueidislock.Locker
	name   string
	wanted *atomic.Int32

	held         context.Context // ends when the lock is lost
	unhold, stop context.CancelFunc
}

// lock is patient where the process has other waiters for the lock. rueidislock
// sometimes forgets a waiter, so a waiter that has waited for long tries again.
func (w *rueidislockWorker) lock(ctx context.Context) (err error) {
	if w.wanted.Load() == 1 {
		w.held, w.unhold, err = w.locks.WithContext(ctx, w.name)
		return err
	}
	const long = 200 * time.Millisecond
	for {
		waiting, stop := context.WithCancel(ctx)
		timer := time.AfterFunc(long, stop)
		w.held, w.unhold, err = w.locks.WithContext(waiting, w.name)
		if timer.Stop() {
			w.stop = stop
			return err
		}
		stop()
		if err == nil {
			w.unhold() // has ended with the wait
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// unlock waits until the key is deleted. rueidislock does not report whether it
// was.
func (w *rueidislockWorker) unlock(context.Context) error {
	if w.held.Err() != nil {
		return errors.New("rueidislock lost the lock")
	}
	w.unhold()
	if w.stop != nil {
		w.stop()
	}
	return nil
}
