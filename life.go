package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// life lets Close wait for the calls that are under way, at the price of two
// atomic additions a call.
type life struct {
	ending  chan struct{} // closed by the first Close
	drained chan struct{} // tells Close to count again
	ended   atomic.Bool
	calls   atomic.Int64
	done    *sync.Once
	result  error // of the first Close
}

func newLife() life {
	return life{ending: make(chan struct{}), drained: make(chan struct{}, 1), done: new(sync.Once)}
}

// begin counts a call in. Whether begin sees that the client has ended, or
// Close sees the call: the two atomics leave no third way.
func (l *life) begin() error {
	l.calls.Add(1)
	if l.ended.Load() {
		l.end()
		return ErrClosed
	}
	return nil
}

// enter counts a call in that must be done also when the client has ended.
func (l *life) enter() { l.calls.Add(1) }

// end counts a call out.
func (l *life) end() {
	if l.calls.Add(-1) == 0 && l.ended.Load() {
		select {
		case l.drained <- struct{}{}:
		default:
		}
	}
}

// drain waits for all calls.
func (l *life) drain() {
	for l.calls.Load() != 0 {
		<-l.drained
	}
}

// closers is how many locks Close releases at a time.
const closers = 16

// Close gives back all locks that are still held, ends their contexts with
// [ErrClosed], makes everybody who waits return ErrClosed, and waits until
// nothing is left in the background. It takes no longer than a few calls to
// the store may take; the error says how many locks could not be given back and
// are left to expire. A second Close waits for the first and returns the same.
func (c *Client) Close() error {
	c.life.done.Do(func() {
		c.life.ended.Store(true)
		close(c.life.ending)
		// Those who wait in the process come in as locks are released, see that
		// it is over, and go. Afterwards nobody can have acquired any more.
		err := c.releaseAll()
		c.life.drain()
		c.life.result = errors.Join(err, c.releaseAll())
		c.cleanups.Wait()
		c.dog.Close()
	})
	return c.life.result
}

func (c *Client) releaseAll() error {
	leases := c.dog.Leases()
	over := time.Now().Add(2 * c.limit)
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		left atomic.Int64
	)
	for range min(closers, len(leases)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(leases); i = next.Add(1) - 1 {
				h := leases[i].Guard.(*hold)
				if !h.end(ErrClosed) {
					continue // unlocked or lost in this very moment
				}
				if time.Now().After(over) {
					left.Add(1)
					c.dog.Forget(&h.Lease)
					h.leave()
					continue
				}
				if err := h.give(context.Background()); err != nil && !errors.Is(err, ErrNotHeld) {
					left.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := left.Load(); n > 0 {
		return fmt.Errorf("%w: %d locks were left to expire", ErrUnreachable, n)
	}
	return nil
}
