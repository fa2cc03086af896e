package zklock

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// line is a connection to a server. It looks at the server's first answer: in it is
// the timeout that it grants, which the client does not tell. And it hangs up on a
// server that does not answer, while there is time to ask another one: the client
// would wait for most of the session's timeout, and for several of them at first.
type line struct {
	net.Conn
	session *session
	answer  []byte // the beginning of the first one

	owed  atomic.Bool // something was sent, and nothing has come since
	timer *time.Timer
}

func newLine(conn net.Conn, s *session) *line {
	l := &line{Conn: conn, session: s}
	l.timer = time.AfterFunc(time.Hour, func() { _ = conn.Close() }) // it is given up
	l.timer.Stop()
	return l
}

const (
	minPatience = 500 * time.Millisecond
	maxPatience = 5 * time.Second
)

// patience is how long to wait for an answer. Everything that is sent is answered.
func (l *line) patience() time.Duration {
	return min(max(l.session.sessionTimeout()/6, minPatience), maxPatience)
}

// Write implements net.Conn.
func (l *line) Write(b []byte) (int, error) {
	if !l.owed.Swap(true) {
		l.timer.Reset(l.patience())
	}
	return l.Conn.Write(b)
}

// Read implements net.Conn.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 && l.owed.Swap(false) {
		l.timer.Stop()
	}
	if !l.heard() {
		l.hear(b[:n], err)
	}
	return n, err
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.timer.Stop()
	return l.Conn.Close()
}

// A server's first answer begins with its length, a version and the timeout in
// milliseconds, four bytes each. A timeout of zero says that there is no session.
const greetingBytes = 12

func (l *line) heard() bool { return len(l.answer) >= greetingBytes }

// hear takes some of the first answer, or the lack of it.
func (l *line) hear(b []byte, err error) {
	l.answer = append(l.answer, b[:min(len(b), greetingBytes-len(l.answer))]...)
	if !l.heard() {
		if err != nil {
			l.session.refused(err)
		}
		return
	}
	if ms := binary.BigEndian.Uint32(l.answer[8:]); ms > 0 {
		l.session.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
	}
}
