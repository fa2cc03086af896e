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
)

// pool keeps idle connections.
type pool struct {
	addr    string
	timeout time.Duration
	busy    chan struct{} // holds one element for each connection that a call uses
	drains  chan struct{} // holds one element for each connection that discard reads

	mu     sync.Mutex
	idle   []*conn // the last one is used next
	closed bool
}

const (
	// maxConns is how many connections are in use at a time. Most calls of a crowd share a few, see
	// batcher. The others have one each: renewals, and what does not end after one round trip.
	maxConns  = 64
	maxDrains = 64
	// maxIdleTime is how long a connection is kept that no call needs.
	maxIdleTime = 30 * time.Second

	// verifyAfter is how long a connection may be idle before it is checked when used again.
	verifyAfter = 100 * time.Millisecond
	// lifetime is how long a connection is used. Its serverClock only moves forward, and would
	// in the end be ahead of a server whose clock runs slower than this machine's.
	lifetime = 5 * time.Minute
)

// leave records an attempt whose caller leaves before its outcome is known. The function
// that it returns is called when the attempt was answered, or never will be.
type leave func() (ended func(answered bool))

// with calls fn with a connection, and discards it if fn returns an error after which
// answers may be unread. leave, which is nil for all but attempts, is called if the outcome
// of fn is unknown.
func (p *pool) with(ctx context.Context, leave leave, fn func(*conn) error) error {
	if err := p.reserve(ctx); err != nil {
		return err
	}
	defer func() { <-p.busy }()
	now := time.Now() // once: reading the clock is a good part of the cost of a call
	c, err := p.take(ctx, now)
	if err != nil {
		return err
	}
	c.beginCall(ctx, now, p.timeout)
	err = fn(c)
	c.ctx = nil
	if !broken(err) {
		p.put(c)
		return err
	}
	if c.wasSilent {
		p.closeIdleSince(c.began)
	}
	p.discard(c, leave)
	return unreachable(err)
}

// discard gives up a connection that a call failed on. If the answer to an attempt is
// unread, discard reads it in the background: until it arrives, a Release on another connection
// could overtake the attempt.
func (p *pool) discard(c *conn, leave leave) {
	if leave == nil || c.unread == 0 {
		_ = c.net.Close()
		return
	}
	ended, drains := leave(), p.drains
	if !c.abandoned {
		drains = nil // the answer does not come any more
	}
	select {
	case drains <- struct{}{}:
		go func() {
			defer func() { <-p.drains }()
			ended(p.drain(c))
		}()
	default:
		_ = c.net.Close()
		ended(false)
	}
}

// drain reads the answers that a caller did not wait for, and reports whether they came.
func (p *pool) drain(c *conn) (answered bool) {
	c.beginCall(context.Background(), time.Now(), p.maxSilence())
	c.maxSilence = 0
	for c.unread > 0 {
		if _, err := c.read(); broken(err) {
			_ = c.net.Close()
			p.closeIdleSince(c.began)
			return false
		}
	}
	p.put(c)
	return true
}

// maxSilence returns how long a connection that worked before may be silent.
func (p *pool) maxSilence() time.Duration { return min(maxSilence, p.timeout/2) }

// closeIdleSince closes the connections that have been idle since before t. From t on the server
// was silent on another connection.
func (p *pool) closeIdleSince(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
		if !c.lastUsed.Before(t) {
			return false
		}
		_ = c.net.Close()
		return true
	})
}

// reserve blocks until one more connection may be used.
func (p *pool) reserve(ctx context.Context) error {
	select {
	case p.busy <- struct{}{}:
		return nil
	default: // ctx.Done would start a timer
	}
	select {
	case p.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
		c.maxSilence = p.maxSilence()
		if now.Sub(c.lastUsed) < verifyAfter {
			return c, nil
		}
		c.setReadDeadline(now.Add(contextPoll)) // after a deadline has passed, every connection seems dead
		if isOpen(c.net) {
			return c, nil
		}
		_ = c.net.Close()
	}
}

func (p *pool) put(c *conn) {
	c.lastUsed = c.began
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxConns {
		_ = c.net.Close()
		return
	}
	p.idle = append(p.idle, c)
	if oldest := p.idle[0]; c.lastUsed.Sub(oldest.lastUsed) > maxIdleTime {
		_ = oldest.net.Close()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
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

// dial connects, and asks the server for its time and its age.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	dialer := net.Dialer{Timeout: p.timeout}
	n, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, unreachable(err)
	}
	c := &conn{net: n, in: bufio.NewReader(n), out: bufio.NewWriter(n)}
	c.beginCall(ctx, time.Now(), p.timeout)
	now, uptime, err := c.askTime()
	if err != nil {
		_ = n.Close()
		if !c.abandoned && !errors.Is(err, errNotMemcached) && !errors.Is(err, errTooManyConnections) {
			err = fmt.Errorf("the server closes new connections (does it want TLS, which dlock does not support here?): %w", err)
		}
		return nil, unreachable(err)
	}
	c.dialed = time.Now()
	c.started, c.uptime = uint64(now-uptime)*1_000_000, time.Duration(uptime)*time.Second
	return c, nil
}
