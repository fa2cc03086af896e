package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Close releases all locks that are still held, ends their contexts with
// [ErrClosed], makes all waiters return ErrClosed, and waits until no background work
// is left. If the store does not answer, Close goes on releasing for twice
// Options.RequestTimeout, and takes a few times that at most. The error says how many locks
// could not be released and are left to expire. A second Close waits for the first and
// returns the same.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.calls.closed.Store(true)
		c.closeBy = c.clock.Now() + 2*c.requestTimeout
		close(c.calls.closing)
		// Waiters of this process enter as locks are released, see that the client is
		// closed, and return. After that no call can acquire any more.
		c.releaseAll()
		c.calls.drain()
		c.releaseAll()
		c.cleanups.Wait()
		c.watchdog.Close()
		if n := c.unreleased.Load(); n > 0 {
			c.closeErr = fmt.Errorf("%w: %d locks were left to expire", ErrUnreachable, n)
		}
	})
	return c.closeErr
}

// maxReleases is how many locks Close releases at a time. Calls that are under way together share
// round trips on some stores. If none ends for a while, they may be stuck at one server of the store,
// and Close releases twice as many.
const maxReleases = 64

func (c *Client) releaseAll() {
	deadline := time.Now().Add(2 * c.requestTimeout)
	holds := c.watchdog.Holds()
	ended := make(chan struct{}, len(holds))
	underWay, most := 0, maxReleases
	var wg sync.WaitGroup
	for _, watched := range holds {
		for underWay >= most {
			select {
			case <-ended:
				underWay--
			case <-time.After(c.requestTimeout / 20):
				most *= 2
			}
		}
		underWay++
		wg.Go(func() {
			defer func() { ended <- struct{}{} }()
			h := watched.Observer.(*hold)
			if !h.end(ErrClosed) {
				return // unlocked or lost at this very moment
			}
			var err error
			if time.Now().After(deadline) {
				c.watchdog.Forget(&h.Hold)
				h.leaveSlot()
				err = fmt.Errorf("%w: Close had no time left to release %q", ErrUnreachable, h.name)
			} else {
				if err = h.tryReleaseOrHandOver(context.Background()); !isFinal(err) {
					err = c.repeatRelease(h.Grant, h.expiry(), err)
				}
				err = h.explainRelease(err)
			}
			if err != nil && !errors.Is(err, ErrNotHeld) {
				c.unreleased.Add(1)
			}
			h.reportClosed(err)
		})
	}
	wg.Wait()
}

// reportClosed calls the hooks for a hold that Close has released. It calls none if the call that
// asked for the lock has not got it, and so returns ErrClosed.
func (h *hold) reportClosed(err error) {
	h.mu.Lock()
	delivered := h.leases > 0
	h.mu.Unlock()
	if !delivered {
		return
	}
	for _, ended := range h.group.endedBy(h) {
		call(h.client.hooks.Released, Event{Name: h.name, Token: ended.token, Err: err})
	}
}

// inFlight counts the calls that are under way, so that Close can wait for them. It
// costs two atomic additions per call.
type inFlight struct {
	count   atomic.Int64
	closed  atomic.Bool
	closing chan struct{} // closed by the first Close
	drained chan struct{} // tells Close to read count again; has room for one
}

// begin counts a call, unless the client is closed. Either begin sees that it is
// closed, or Close sees the call.
func (f *inFlight) begin() error {
	f.add()
	if f.closed.Load() {
		f.end()
		return ErrClosed
	}
	return nil
}

// add counts a call that a closed client has to finish, too.
func (f *inFlight) add() { f.count.Add(1) }

func (f *inFlight) end() {
	if f.count.Add(-1) == 0 && f.closed.Load() {
		select {
		case f.drained <- struct{}{}:
		default:
		}
	}
}

func (f *inFlight) drain() {
	for f.count.Load() != 0 {
		<-f.drained
	}
}
