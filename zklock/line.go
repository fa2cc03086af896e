package zklock

import (
	"encoding/binary"
	"net"
	"sync"
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

	mu    sync.Mutex
	owed  bool        // something was sent, and nothing has come since
	timer *time.Timer // runs while owed: changed together with it

	watches watchesFirst
}

func newLine(conn net.Conn, s *session) *line {
	l := &line{Conn: conn, session: s}
	l.timer = time.AfterFunc(time.Hour, func() { _ = conn.Close() }) // it is given up
	l.timer.Stop()
	return l
}

// maxPatience is for sessions that last so long that there is no hurry.
const maxPatience = 10 * time.Second

// patience is how long to wait for an answer. Everything that is sent is answered. It
// leaves as much time again for another server before a lock is lost.
func (l *line) patience() time.Duration {
	return min(l.session.sessionTimeout()/4, maxPatience)
}

// Write implements net.Conn.
func (l *line) Write(b []byte) (int, error) {
	l.mu.Lock()
	if !l.owed {
		l.owed = true
		l.timer.Reset(l.patience())
	}
	l.mu.Unlock()
	l.watches.sent(b)
	return l.Conn.Write(b)
}

// Read implements net.Conn.
func (l *line) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.mu.Lock()
		if l.owed {
			l.owed = false
			l.timer.Stop()
		}
		l.mu.Unlock()
	}
	if !l.heard() {
		l.hear(b[:n], err)
	}
	if n > 0 {
		l.watches.wait()
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

// watchesFirst makes the client hear nothing new on a connection before it has asked
// for its watches again. It asks for what happened since the last answer that it has
// seen, and reads which one that was without looking whether an answer is just coming:
// what happened before that one would be missed.
type watchesFirst struct {
	due   atomic.Bool // the client has watches, and has not asked for them yet
	early atomic.Bool // it has asked for something else before
	asked chan struct{}
}

// Requests begin with their length, a number and what they ask for.
const (
	askedFor     = 8
	opPing       = 11
	opAuth       = 100
	opSetWatches = 101
)

// expect is called when there is a session, before anything else is sent.
func (w *watchesFirst) expect() {
	w.asked = make(chan struct{})
	w.due.Store(true)
}

// sent takes note of a request.
func (w *watchesFirst) sent(request []byte) {
	if !w.due.Load() || len(request) < askedFor+4 {
		return
	}
	switch binary.BigEndian.Uint32(request[askedFor:]) {
	case opSetWatches:
		if w.due.Swap(false) {
			close(w.asked)
		}
	case opPing, opAuth: // whose answers do not count
	default:
		w.early.Store(true)
	}
}

// wait is called with an answer. There may be no watches after all, so that the
// waiting is limited.
func (w *watchesFirst) wait() {
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
