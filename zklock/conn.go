package zklock

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// serverConn is a connection to a server. It reads the granted timeout, which the client does
// not tell, from the server's first answer. And it closes a connection without answers while
// there is time to ask another server: the client would wait for most of the timeout.
type serverConn struct {
	net.Conn
	session  *session
	greeting []byte // the beginning of the server's first answer

	mu    sync.Mutex
	owed  bool        // something was sent, and nothing was received since
	timer *time.Timer // runs while owed: changed together with it

	restore watchRestore
}

func newServerConn(conn net.Conn, s *session) *serverConn {
	c := &serverConn{Conn: conn, session: s}
	c.timer = time.AfterFunc(time.Hour, func() { _ = conn.Close() })
	c.timer.Stop()
	return c
}

// answerLimit is how long a server has to answer at most. A quarter of the session's timeout leaves
// as much time again for another server before a lock is lost, and a call that is repeated over
// another connection ends within connectLimit.
const answerLimit = 4 * time.Second

func (c *serverConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if !c.owed {
		c.owed = true
		c.timer.Reset(min(c.session.sessionTimeout()/4, answerLimit))
	}
	c.mu.Unlock()
	c.restore.sent(b)
	return c.Conn.Write(b)
}

func (c *serverConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		if c.owed {
			c.owed = false
			c.timer.Stop()
		}
		c.mu.Unlock()
	}
	if len(c.greeting) < greetingBytes {
		c.readGreeting(b[:n], err)
	}
	if n > 0 {
		c.restore.wait()
	}
	return n, err
}

func (c *serverConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// greetingBytes is the part of a server's first answer that is read: its length, a version
// and the timeout in milliseconds, four bytes each. A timeout of zero rejects the session.
const greetingBytes = 12

func (c *serverConn) readGreeting(b []byte, err error) {
	c.greeting = append(c.greeting, b[:min(len(b), greetingBytes-len(c.greeting))]...)
	if len(c.greeting) < greetingBytes {
		if err != nil {
			c.session.noGreeting(err)
		}
		return
	}
	if ms := binary.BigEndian.Uint32(c.greeting[8:]); ms > 0 {
		c.session.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
	}
}

// watchRestore keeps answers from the client on a new connection until the client has asked
// to restore its watches. The client asks for events since the last answer. If it processes
// an answer at the same time, it misses the events before that answer.
type watchRestore struct {
	due   atomic.Bool // the client has watches, and has not asked for them yet
	early atomic.Bool // the client has sent another request before
	asked chan struct{}
}

// A request begins with its length, its number and its kind.
const (
	kindOffset   = 8
	opPing       = 11
	opAuth       = 100
	opSetWatches = 101
)

// expect is called when the session begins, before the client sends anything else.
func (w *watchRestore) expect() {
	w.asked = make(chan struct{})
	w.due.Store(true)
}

// sent notes a request.
func (w *watchRestore) sent(request []byte) {
	if !w.due.Load() || len(request) < kindOffset+4 {
		return
	}
	switch binary.BigEndian.Uint32(request[kindOffset:]) {
	case opSetWatches:
		if w.due.Swap(false) {
			close(w.asked)
		}
	case opPing, opAuth: // their answers contain no such number
	default:
		w.early.Store(true)
	}
}

// wait delays an answer. The client may have no watches after all: the delay is limited.
func (w *watchRestore) wait() {
	if !w.early.Load() {
		return
	}
	const limit = 50 * time.Millisecond
	select {
	case <-w.asked:
	case <-time.After(limit):
		w.due.Store(false)
	}
	w.early.Store(false)
}
