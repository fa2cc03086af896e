package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockClient is github.com/redis/rueidis/rueidislock with what it advises
// for one server of this version: one key, and no notice of its own changes.
type rueidislockClient struct {
	locks  rueidislock.Locker
	wanted map[string]*atomic.Int32 // workers of each name
}

func openRueidislock(dir string) (func(context.Context) (client, error), error) {
	single, _, err := redisAddresses(dir)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (client, error) {
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{single}},
			KeyMajority:    1,
			NoLoopTracking: true,
			// By itself it gives an attempt up after 20 ms, deletes the key, does
			// not hear of that, and waits for ever: a busy machine stops it.
			TryNextAfter: 5 * time.Second,
		})
		if err != nil {
			return nil, err
		}
		return &rueidislockClient{locks, make(map[string]*atomic.Int32)}, nil
	}, nil
}

func (c *rueidislockClient) worker(_ context.Context, name string) (worker, error) {
	if c.wanted[name] == nil {
		c.wanted[name] = new(atomic.Int32)
	}
	c.wanted[name].Add(1)
	return &rueidislockWorker{locks: c.locks, name: name, wanted: c.wanted[name]}, nil
}

func (c *rueidislockClient) commands() (uint64, bool) { return 0, false } // the server counts

func (c *rueidislockClient) close() error {
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

func (w *rueidislockWorker) lock(ctx context.Context) (err error) {
	if w.wanted.Load() > 1 {
		return w.lockPatiently(ctx)
	}
	w.held, w.unhold, err = w.locks.WithContext(ctx, w.name)
	return err
}

// lockPatiently is for a lock that others of the process want too. Those who wait
// for it are sometimes forgotten for ever, so they ask again when they have
// waited for long.
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
		w.unhold() // it ends with the waiting
	}
	return false, ctx.Err()
}

// unlock waits until the key is deleted. Whether it was is not told.
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
