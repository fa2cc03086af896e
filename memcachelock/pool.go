package memcachelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// pool keeps idle connections.
type pool struct {
	addr    string
	timeout time.Duration
	busy    chan struct{} // holds one element for each connection in use

	mu       sync.Mutex
	idle     []*conn // the one that was used last is used next
	draining int     // connections that their callers have left
	settled  bool    // no more of these are wanted
	closed   bool

	drains sync.WaitGroup // counts draining
}

const (
	// maxConns is how many connections there are at most. More callers wait.
	maxConns = 16
	// maxDraining is how many more there are that no caller waits for.
	maxDraining = 64
)

// with calls fn with a connection. One that fn fails on is closed, unless it was the
// server that refused something, or fn just did not like the answer. An acquisition
// whose outcome is unknown is recorded by leave, which is nil for other calls.
func (p *pool) with(ctx context.Context, leave leave, fn func(*conn) error) error {
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer func() { <-p.busy }()
	now := time.Now() // once for all: looking at the clock is a good part of what a call costs here
	c, err := p.take(ctx, now)
	if err != nil {
		return err
	}
	c.limit(ctx, now, p.timeout)
	err = fn(c)
	c.ctx = nil
	if !broken(err) {
		p.put(c)
		return err
	}
	if c.quiet {
		p.distrust(c.began)
	}
	p.part(c, leave)
	if !errors.Is(err, driver.ErrUnreachable) {
		return fmt.Errorf("%w: memcached: %w", driver.ErrUnreachable, err)
	}
	return err
}

// leave records an acquisition whose caller leaves before its outcome is known.
type leave func() (ended func(answered bool))

// part gives up a connection that a call has failed on. If the server owes the answer to an
// acquisition, that is read in the background: while it is on its way, a Release on another
// connection could overtake the acquisition.
func (p *pool) part(c *conn, leave leave) {
	if leave == nil || c.owed == 0 {
		_ = c.net.Close()
		return
	}
	ended := leave()
	if !c.left || !p.mayDrain() {
		_ = c.net.Close()
		ended(false)
		return
	}
	go func() {
		defer p.drained()
		err := c.drain(p.silence())
		if err == nil {
			p.put(c)
		} else {
			_ = c.net.Close()
			p.distrust(c.began)
		}
		ended(err == nil)
	}()
}

// mayDrain reports whether one connection more may be read that nobody waits for. If so,
// drained is called when it has been.
func (p *pool) mayDrain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled || p.draining >= maxDraining {
		return false
	}
	p.draining++
	p.drains.Add(1)
	return true
}

func (p *pool) drained() {
	p.mu.Lock()
	p.draining--
	p.mu.Unlock()
	p.drains.Done()
}

// settle waits until all connections that their callers have left are drained.
func (p *pool) settle() {
	p.mu.Lock()
	p.settled = true
	p.mu.Unlock()
	p.drains.Wait()
}

// silence is how long a connection that worked before may be silent.
func (p *pool) silence() time.Duration { return min(maxSilence, p.timeout/2) }

// distrust closes the connections that have been idle since a moment from which on the
// server was silent on another one.
func (p *pool) distrust(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
		if !c.used.Before(since) {
			return false
		}
		_ = c.net.Close()
		return true
	})
}

// begin waits until there may be one connection more in use. It asks the context for
// Done only if it has to: that starts a timer.
func (p *pool) begin(ctx context.Context) error {
	select {
	case p.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// broken says whether a connection cannot be used after an error: it may have
// answers in it that nobody waits for.
func broken(err error) bool {
	return err != nil && !errors.Is(err, errRefused) && !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrNotHeld)
}

// midway is for an error in the middle of many answers: those that follow it are not
// read, so that it breaks the connection whatever it is.
func midway(err error) error {
	if errors.Is(err, errRefused) {
		return fmt.Errorf("%w: %s", driver.ErrUnreachable, err.Error())
	}
	return err
}

// take returns an idle connection, or a new one.
func (p *pool) take(ctx context.Context, now time.Time) (*conn, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if now.Sub(c.dialed) > lifetime {
			_ = c.net.Close()
			continue
		}
		c.silent = p.silence()
		if now.Sub(c.used) < trusted {
			return c, nil
		}
		c.readUntil(now.Add(patience)) // one that has passed makes every connection look dead
		if alive(c.net) {
			return c, nil
		}
		_ = c.net.Close()
	}
}

// trusted is how long a connection that worked is not looked at before it is used
// again.
const trusted = 100 * time.Millisecond

// lifetime is how long a connection is used. Its clock is only ever set forward, and where
// this machine's runs faster than the server's, it would be ahead of that in the end.
const lifetime = 5 * time.Minute

func (p *pool) put(c *conn) {
	c.used = c.began
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxConns {
		_ = c.net.Close()
		return
	}
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		_ = c.net.Close()
	}
	p.idle = nil
}

// dial connects, and finds out when the server started.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	dialer := net.Dialer{Timeout: p.timeout}
	n, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("%w: memcached: %w", driver.ErrUnreachable, err)
	}
	c := &conn{net: n, in: bufio.NewReader(n), bw: bufio.NewWriter(n)}
	c.limit(ctx, time.Now(), p.timeout)
	now, uptime, err := c.askTime()
	if err != nil {
		_ = n.Close()
		if errors.Is(err, driver.ErrUnreachable) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: memcached: %w", driver.ErrUnreachable, err)
	}
	c.dialed = time.Now()
	c.started, c.uptime = uint64(now-uptime)*1_000_000, time.Duration(uptime)*time.Second
	return c, nil
}
