package memcachelock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// conn is one connection.
type conn struct {
	net    net.Conn
	in     *bufio.Reader
	bw     *bufio.Writer
	out    []byte    // what is written next; only its room is kept
	dialed time.Time // when it was open
	used   time.Time // when the last call that worked began

	// The call that uses it began then, and is limited by ctx and until.
	began time.Time
	ctx   context.Context
	until time.Time
	// Until when reading and writing may wait, as the network was told.
	reads, writes time.Time

	owed   int           // answers to what was written that have not been read
	rest   int           // bytes that are left of the value of the first of them
	silent time.Duration // how long the server may send nothing at all; zero is as long as the call lasts
	quiet  bool          // the last call ended after the server had sent nothing for a while
	left   bool          // the last call ended because its caller's time was up

	clock clock
	// uptime is how long the server said that it had been running when it was dialed.
	uptime time.Duration
	// started is when the server started, in microseconds by its clock. It is the
	// same for all clients of that server.
	started uint64
}

// write only collects: flush sends it.
func (c *conn) write(b []byte) {
	c.out = b[:0]
	_, _ = c.bw.Write(b) // flush has the error
}

func (c *conn) flush() error { return c.bw.Flush() }

// patience is how late a call may notice that its context is done. To be told would
// cost more than the call itself. To set a deadline costs something too: one that is at
// least half as far away is left as it is.
const patience = 10 * time.Millisecond

// How long a connection that worked before may be silent. A router may have forgotten it:
// the server is asked on a new connection before the caller's time is up.
const (
	maxSilence = time.Second
	// suspicious is from when on other connections that have been idle meanwhile are
	// not trusted any more either.
	suspicious = 250 * time.Millisecond
)

// errSilent is the end of a connection on which nothing came for too long.
var errSilent = errors.New("the connection is silent")

// wait waits until there is more to read than now, for as long as the caller wants it.
func (c *conn) wait() error {
	here := c.in.Buffered()
	var since time.Time // when nothing had come yet
	for now := c.began; ; now = time.Now() {
		silence := time.Duration(0)
		if !since.IsZero() {
			silence = now.Sub(since)
		}
		c.quiet = silence >= suspicious
		switch {
		case !now.Before(c.until):
			c.left = true
			return os.ErrDeadlineExceeded
		case c.silent > 0 && silence >= c.silent:
			c.quiet = true
			return errSilent
		}
		if left := c.reads.Sub(now); left < patience/2 || left > patience {
			c.readUntil(now.Add(patience))
		}
		_, err := c.in.Peek(here + 1)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.ctx.Err() != nil:
			c.left = true
			return context.Cause(c.ctx)
		}
		if since.IsZero() {
			since = now
		}
	}
}

// readLine returns the next line, without its end. It is gone with the next read.
func (c *conn) readLine() ([]byte, error) {
	for {
		here, _ := c.in.Peek(c.in.Buffered())
		if end := bytes.IndexByte(here, '\n'); end >= 0 {
			_, _ = c.in.Discard(end + 1)
			return bytes.TrimSuffix(here[:end], []byte("\r")), nil
		}
		if err := c.wait(); err != nil {
			return nil, err
		}
	}
}

// readRest returns the bytes that are left of a value.
func (c *conn) readRest() (string, error) {
	var b strings.Builder
	for b.Grow(c.rest); c.rest > 0; {
		if c.in.Buffered() == 0 {
			if err := c.wait(); err != nil {
				return "", err
			}
		}
		here, _ := c.in.Peek(min(c.in.Buffered(), c.rest))
		b.Write(here)
		_, _ = c.in.Discard(len(here))
		c.rest -= len(here)
	}
	return b.String(), nil
}

// drain reads the answers that are owed, when their caller has left.
func (c *conn) drain(limit time.Duration) error {
	now := time.Now()
	c.began, c.ctx, c.until, c.silent = now, context.Background(), now.Add(limit), 0
	for c.owed > 0 {
		if c.rest > 0 {
			if _, err := c.readRest(); err != nil {
				return err
			}
			c.owed--
			continue
		}
		if _, err := c.read(); broken(err) {
			return err
		}
	}
	return nil
}

// A connection that is broken says so when it is used.
func (c *conn) readUntil(t time.Time) {
	c.reads = t
	_ = c.net.SetReadDeadline(t)
}

func (c *conn) writeUntil(t time.Time) {
	c.writes = t
	_ = c.net.SetWriteDeadline(t)
}

// limit makes the connection the caller's for one call that begins now.
func (c *conn) limit(ctx context.Context, now time.Time, timeout time.Duration) {
	c.quiet, c.left = false, false
	if !now.After(c.dialed) { // what it stores now is younger than the connection: see handle.known
		now = time.Now()
	}
	c.began, c.ctx, c.until = now, ctx, now.Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(c.until) {
		c.until = earlier
	}
	// What is to be written is short, and waits only for a server that reads nothing.
	if left := c.writes.Sub(now); left < timeout/2 || c.writes.After(c.until) {
		c.writeUntil(c.until)
	}
}

// ask sends one command that was written and reads its answer.
func (c *conn) ask() (answer, error) {
	if err := c.flush(); err != nil {
		return answer{}, err
	}
	return c.read()
}

// get returns the item under key, or nil.
func (c *conn) get(key string) (*found, error) {
	c.writeGet(key, true)
	a, err := c.ask()
	return a.found(), err
}

// put stores an item unless there is one; with a number, if the one that is there has
// it. It returns in the same round trip the item that is there then, nil if there is none,
// also if the server refused to store.
func (c *conn) put(key, value string, end int64, cas uint64) (stored bool, f *found, err error) {
	if len(value) > maxValue {
		return false, nil, refusal("the description of the holder is too long")
	}
	if cas == 0 {
		c.writeAdd(key, value, end)
	} else {
		c.writeSwap(key, value, end, cas)
	}
	c.writeGet(key, true)
	a, refused := c.ask()
	if broken(refused) {
		return false, nil, refused
	}
	item, err := c.read()
	if err != nil {
		return false, nil, err
	}
	return a.done, item.found(), refused
}

// pool keeps connections that nobody uses at the moment.
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

// prompt is how fast an answer is that tells the time. When another was given, nobody
// knows: it is asked for again, but not for ever on a slow network.
const prompt = 500 * time.Millisecond

// askTime asks the server for its time, and for how long it is running.
func (c *conn) askTime() (now, uptime int64, err error) {
	for try := 1; ; try++ {
		asked := time.Now()
		stats, err := c.stats("")
		if err != nil {
			return 0, 0, err
		}
		if now, uptime, err = times(stats); err != nil {
			return 0, 0, err
		}
		if time.Since(asked) < prompt || try == tries {
			c.clock.hear(now, asked)
			return now, uptime, nil
		}
	}
}

// stats asks for the server's figures: all, or those of a kind.
func (c *conn) stats(kind string) (map[string]string, error) {
	c.write([]byte(strings.TrimRight("stats "+kind, " ") + "\r\n"))
	if err := c.flush(); err != nil {
		return nil, err
	}
	stats := make(map[string]string)
	for {
		line, err := c.readLine()
		if err != nil {
			return nil, err
		}
		fields := strings.SplitN(string(line), " ", 3)
		switch {
		case fields[0] == "END":
			return stats, nil
		case fields[0] != "STAT" || len(fields) < 2:
			return nil, fmt.Errorf("%w: %q", errAnswer, line)
		case len(fields) == 3:
			stats[fields[1]] = fields[2]
		}
	}
}

// times are the server's time, and for how long it is running, in seconds. They are counted
// by one clock, so that their difference is always the same.
func times(stats map[string]string) (now, uptime int64, err error) {
	now, err = strconv.ParseInt(stats["time"], 10, 64)
	uptime, err2 := strconv.ParseInt(stats["uptime"], 10, 64)
	if err != nil || err2 != nil || now-uptime <= int64(maxTTL/time.Second) || uptime < 0 {
		return 0, 0, fmt.Errorf("%w: it does not tell its time", errAnswer)
	}
	return now, uptime, nil
}

// young returns for how long the server is too young to give a lock, zero if it is
// not: who had locks before it started may still believe in them.
func (c *conn) young(delay, ttl time.Duration) time.Duration {
	switch {
	case delay < 0:
		return 0
	case delay == 0:
		delay = ttl
	}
	return max(0, delay+boast-c.uptime-time.Since(c.dialed))
}

// boast is how much older than it is a server may say to be: it begins at two seconds,
// and counts the one in which it started.
const boast = 3 * time.Second
