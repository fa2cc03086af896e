package subjects

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockClient is a client of github.com/redis/rueidis/rueidislock with the
// settings that it recommends for one server of this version: one key, and no
// notification of its own changes.
type rueidislockClient struct {
	locks  rueidislock.Locker
	wanted map[string]*atomic.Int32 // number of workers, by name
}

func openRueidislock(dir string) (func(context.Context) (Client, error), error) {
	single, _, err := redisAddresses(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (Client, error) {
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{single}},
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
		return &rueidislockClient{locks, make(map[string]*atomic.Int32)}, nil
	}, nil
}

func (c *rueidislockClient) Worker(_ context.Context, name string) (Worker, error) {
	if c.wanted[name] == nil {
		c.wanted[name] = new(atomic.Int32)
	}
	c.wanted[name].Add(1)
	return &rueidislockWorker{locks: c.locks, name: name, wanted: c.wanted[name]}, nil
}

func (c *rueidislockClient) Commands() (uint64, bool) { return 0, false } // counted by the server

func (c *rueidislockClient) Close() error {
	c.locks.Close()
	return nil
}

type rueidislockWorker struct {
	locks  rueidislock.Locker
	name   string
	wanted *atomic.Int32

	held         context.Context // ends when the lock is lost
	unhold, stop context.CancelFunc
}

func (w *rueidislockWorker) Lock(ctx context.Context) (err error) {
	if w.wanted.Load() > 1 {
		return w.lockPatiently(ctx)
	}
	w.held, w.unhold, err = w.locks.WithContext(ctx, w.name)
	return err
}

// lockPatiently is for a lock with other waiters in the process. rueidislock
// sometimes forgets a waiter, so a waiter that has waited for long tries again.
func (w *rueidislockWorker) lockPatiently(ctx context.Context) error {
	for {
		granted, err := w.lockOrTire(ctx)
		if granted || err != nil {
			return err
		}
	}
}

func (w *rueidislockWorker) lockOrTire(ctx context.Context) (granted bool, err error) {
	const long = 200 * time.Millisecond
	waiting, stop := context.WithCancel(ctx)
	timer := time.AfterFunc(long, stop)
	w.held, w.unhold, err = w.locks.WithContext(waiting, w.name)
	if timer.Stop() {
		w.stop = stop
		return err == nil, err
	}
	stop()
	if err == nil {
		w.unhold() // has ended with the wait
	}
	return false, ctx.Err()
}

// Unlock waits until the key is deleted. rueidislock does not report whether it
// was.
func (w *rueidislockWorker) Unlock(context.Context) error {
	if w.held.Err() != nil {
		return errors.New("rueidislock lost the lock")
	}
	w.unhold()
	if w.stop != nil {
		w.stop()
	}
	return nil
}
