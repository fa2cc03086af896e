package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
			watched.Observer.(*grant).close(deadline)
		})
	}
	wg.Wait()
}

// close ends a grant that is held, releases it, and reports the end of its tenures. A grant that is asked
// for, or idle, is left to its owner.
func (g *grant) close(deadline time.Time) {
	if !g.end(ErrClosed) {
		return
	}
	c := g.client
	var err error
	if time.Now().After(deadline) {
		c.watchdog.Forget(&g.Hold)
		if g.slot != nil {
			g.slot.Leave(true)
		}
		err = fmt.Errorf("%w: Close had no time left to release %q", ErrUnreachable, g.name())
	} else {
		if err = g.releaseOnce(context.Background()); !isFinal(err) {
			err = c.repeatRelease(g.Grant, g.Expiry(), err)
		}
		err = explainRelease(g.name(), err)
	}
	if err != nil && !errors.Is(err, ErrNotHeld) {
		c.unreleased.Add(1)
	}
	for _, t := range g.takeReports() {
		t.reportEnd(c.hooks.Released, err)
	}
}
