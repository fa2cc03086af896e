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

// conn is a connection, which one call at a time uses.
type conn struct {
	net      net.Conn
	in       *bufio.Reader
	out      *bufio.Writer
	scratch  []byte    // in which commands are assembled
	dialed   time.Time // when it was open
	lastUsed time.Time // when the last call that succeeded began

	// The current call.
	began      time.Time
	ctx        context.Context
	checked    time.Time     // when it was last compared with its limits
	until      time.Time     // its time limit
	maxSilence time.Duration // how long the server may send nothing; zero is unlimited

	// How the last call ended.
	wasSilent bool // after the server had sent nothing for suspiciousSilence
	abandoned bool // because its context or its time limit ended

	readDeadline, writeDeadline time.Time // as set on net

	unread      int // commands whose answers have not been read
	unreadValue int // bytes of the value of the first of these answers

	clock   serverClock
	uptime  time.Duration // how long the server had been running when the connection was dialed
	started uint64        // when the server started, in microseconds by its clock: the same for all clients
}

// contextPoll is how late a call may notice that its context is done. A notification would cost
// more than the call itself. Setting a read deadline costs something, too: one that is at least half
// of contextPoll away stays as it is.
const contextPoll = 10 * time.Millisecond

const (
	// maxSilence is how long the server may send nothing over a connection that worked before. A
	// router may have forgotten the connection. The store then asks again over another one, before
	// the caller's time is up.
	maxSilence = time.Second
	// suspiciousSilence is the silence after which other connections that were idle meanwhile
	// are not trusted either.
	suspiciousSilence = 250 * time.Millisecond
)

// waitForMore blocks until there is more to read, or until the call has to end. It reads before it
// compares times: the answer may be there although the process was stopped for long.
func (c *conn) waitForMore() error {
	buffered := c.in.Buffered()
	silentSince := c.checked
	for ; ; c.checked = time.Now() {
		now := c.checked
		silence := now.Sub(silentSince)
		c.wasSilent = silence >= suspiciousSilence
		if left := c.readDeadline.Sub(now); left < contextPoll/2 || left > contextPoll {
			c.setReadDeadline(now.Add(contextPoll))
		}
		_, err := c.in.Peek(buffered + 1)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.ctx.Err() != nil:
			c.abandoned = true
			return context.Cause(c.ctx)
		case !now.Before(c.until):
			c.abandoned = true
			return os.ErrDeadlineExceeded
		case c.maxSilence > 0 && silence >= c.maxSilence:
			c.wasSilent = true
			return errSilent
		}
	}
}

// readLine returns the next line without its end. The line is valid until the next read.
func (c *conn) readLine() ([]byte, error) {
	for {
		buffered, _ := c.in.Peek(c.in.Buffered())
		if end := bytes.IndexByte(buffered, '\n'); end >= 0 {
			_, _ = c.in.Discard(end + 1)
			return bytes.TrimSuffix(buffered[:end], []byte("\r")), nil
		}
		if err := c.waitForMore(); err != nil {
			return nil, err
		}
	}
}

// readValue returns the unread bytes of a value.
func (c *conn) readValue() (string, error) {
	var b strings.Builder
	for b.Grow(c.unreadValue); c.unreadValue > 0; {
		if c.in.Buffered() == 0 {
			if err := c.waitForMore(); err != nil {
				return "", err
			}
		}
		part, _ := c.in.Peek(min(c.in.Buffered(), c.unreadValue))
		b.Write(part)
		_, _ = c.in.Discard(len(part))
		c.unreadValue -= len(part)
	}
	return b.String(), nil
}

func (c *conn) setReadDeadline(t time.Time) {
	c.readDeadline = t
	_ = c.net.SetReadDeadline(t) // a broken connection reports its error when it is used
}

// beginCall prepares the connection for a call that begins now.
func (c *conn) beginCall(ctx context.Context, now time.Time, timeout time.Duration) {
	c.wasSilent, c.abandoned = false, false
	if !now.After(c.dialed) { // what it stores is younger than the connection: see handle.casOver
		now = time.Now()
	}
	c.began, c.checked, c.ctx, c.until = now, now, ctx, now.Add(timeout)
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(c.until) {
		c.until = earlier
	}
	// Commands are short: writing blocks only if the server reads nothing.
	if left := c.writeDeadline.Sub(now); left < timeout/2 || c.writeDeadline.After(c.until) {
		c.writeDeadline = c.until
		_ = c.net.SetWriteDeadline(c.until)
	}
}

// ask sends the command that was written and reads its answer.
func (c *conn) ask() (answer, error) {
	if err := c.out.Flush(); err != nil {
		return answer{}, err
	}
	return c.read()
}

// readAll sends the commands that were written, and reads n answers. It calls fn with each of
// them, and with an error if the server refused the command.
func (c *conn) readAll(n int, fn func(i int, a answer, err error)) error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	for i := range n {
		a, err := c.read()
		if broken(err) {
			return err
		}
		fn(i, a, err)
	}
	return nil
}

// get returns the item of a lock, or nil.
func (c *conn) get(name string) (*item, error) {
	c.writeGet(name, wholeItem)
	a, err := c.ask()
	return a.found(), err
}

// put stores an item, if the key is free, or with a cas, if the present item has that number. It
// returns the item that is there afterwards, or nil, in the same round trip, also if the server
// refused to store.
func (c *conn) put(name, value string, expiry int64, cas uint64) (stored bool, it *item, err error) {
	if len(value) > maxValue {
		return false, nil, failed("the description of the holder is too long")
	}
	c.writePut(name, value, expiry, cas)
	if err := c.out.Flush(); err != nil {
		return false, nil, err
	}
	return c.readPut()
}

func (c *conn) writePut(name, value string, expiry int64, cas uint64) {
	c.writeStore(name, value, expiry, cas)
	c.writeGet(name, wholeItem)
}

func (c *conn) readPut() (stored bool, it *item, err error) {
	a, refused := c.read()
	if broken(refused) {
		return false, nil, refused
	}
	present, err := c.read()
	if err != nil {
		return false, nil, err
	}
	return a.done, present.found(), refused
}
