package zklock

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// serverConn is a connection to a server. It reads the granted timeout, which the client does
// not tell, from the server's first answer. And it closes a connection without answers while
// there is time to ask another server: the client would wait for most of the timeout.
type serverConn struct {
	net.Conn
	connector *connector
	greeting  []byte // the beginning of the server's first answer

	mu    sync.Mutex
	owed  bool        // something was sent, and nothing was received since
	timer *time.Timer // runs while owed: changed together with it
}

func newServerConn(conn net.Conn, cn *connector) *serverConn {
	c := &serverConn{Conn: conn, connector: cn}
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
		c.timer.Reset(min(c.connector.sessionTimeout()/4, answerLimit))
	}
	c.mu.Unlock()
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
			c.connector.noGreeting(err)
		}
		return
	}
	if ms := binary.BigEndian.Uint32(c.greeting[8:]); ms > 0 {
		c.connector.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
	}
}
