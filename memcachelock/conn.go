package memcachelock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"
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
