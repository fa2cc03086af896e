package zklock

import (
	"encoding/binary"
	"net"
	"time"
)

// greeting is a connection that looks at the first answer of the server: in it is
// the timeout that it grants, which the client does not tell.
type greeting struct {
	net.Conn
	session *session
	answer  []byte // its beginning
}

// A server's first answer begins with its length, a version and the timeout in
// milliseconds, four bytes each. A timeout of zero says that there is no session.
const greetingBytes = 12

func (g *greeting) heard() bool { return len(g.answer) >= greetingBytes }

// Read implements net.Conn.
func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.heard() {
		return n, err
	}
	g.answer = append(g.answer, b[:min(n, greetingBytes-len(g.answer))]...)
	if g.heard() {
		if ms := binary.BigEndian.Uint32(g.answer[8:]); ms > 0 {
			g.session.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
		}
	} else if err != nil {
		g.session.refusedGreeting(err)
	}
	return n, err
}

const (
	minGreeting = 500 * time.Millisecond
	maxGreeting = 5 * time.Second
)

// SetReadDeadline implements net.Conn. The client would wait for a server that does
// not answer at all for several times the session's timeout, in which others could.
func (g *greeting) SetReadDeadline(at time.Time) error {
	if !g.heard() {
		if limit := time.Now().Add(min(max(g.session.sessionTimeout()/3, minGreeting), maxGreeting)); at.After(limit) || at.IsZero() {
			at = limit
		}
	}
	return g.Conn.SetReadDeadline(at)
}
