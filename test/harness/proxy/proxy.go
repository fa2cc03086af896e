// Package proxy provides a TCP proxy on loopback that causes the faults of
// networks: it holds traffic and delivers it later, loses replies, resets
// connections, hangs, or delays. It can do so at an exact moment: when a certain
// request arrives.
//
// A hold does not lose what was sent, even if the sender closes its connection
// meanwhile: the bytes arrive when the proxy delivers them.
package proxy

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one direction of a connection.
type Direction int

// The directions.
const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client
)

// Proxy forwards connections to a server. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // signals changes of the fields below
	target   string
	held     [2]bool // by Direction
	hangs    bool
	delay    time.Duration
	triggers []*trigger
	conns    map[*Conn]struct{}
	closed   bool
}

// trigger is an action for the next request that matches.
type trigger struct {
	match func(request []byte) bool
	do    func(c *Conn)
}

// Run starts a proxy to the server at target for a test, and closes it, with all
// its connections, when the test ends.
func Run(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Start starts a proxy to the server at target.
func Start(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, conns: make(map[*Conn]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.work.Go(p.accept)
	return p, nil
}

// Addr is the address of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hold stops the traffic in the given directions (default: both) on all present
// and future connections. Senders do not notice.
func (p *Proxy) Hold(directions ...Direction) {
	if len(directions) == 0 {
		directions = []Direction{Requests, Replies}
	}
	p.change(func() {
		for _, d := range directions {
			p.held[d] = true
		}
	})
}

// Deliver ends Hold. Held bytes are delivered first.
func (p *Proxy) Deliver() { p.change(func() { p.held = [2]bool{} }) }

// Hang sets whether the proxy accepts new connections without reading from them,
// until a Reset ends them.
func (p *Proxy) Hang(hangs bool) { p.change(func() { p.hangs = hangs }) }

// Blackhole stops the traffic on the present connections, like a router that has
// lost their state. New connections work.
func (p *Proxy) Blackhole() {
	all := p.all()
	p.change(func() {
		for _, c := range all {
			c.stalled = true
		}
	})
}

// Lag holds the requests on the present connections, even if a client closes its
// connection meanwhile. New connections work. deliver ends the hold: it returns
// when the server has answered the held requests, or after limit.
func (p *Proxy) Lag() (deliver func(limit time.Duration)) {
	all := p.all()
	set := func(lags bool) {
		p.change(func() {
			for _, c := range all {
				c.lags = lags
			}
		})
	}
	set(true)
	return func(limit time.Duration) {
		set(false)
		p.Settle(limit)
	}
}

// Delay delays everything that is sent from now on by d.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Reset ends all present connections as if the other side had crashed, and drops
// held bytes. New connections are accepted.
func (p *Proxy) Reset() {
	for _, c := range p.all() {
		c.Reset()
	}
}

// OnRequest calls do once, at the next request that matches, before the proxy
// forwards any byte of it. A request is the result of one read, which for small
// requests is what the client wrote at once. The channel is closed when do has
// returned.
func (p *Proxy) OnRequest(match func(request []byte) bool, do func(c *Conn)) (happened <-chan struct{}) {
	done := make(chan struct{})
	m := &trigger{match: match, do: func(c *Conn) {
		defer close(done)
		if do != nil {
			do(c)
		}
	}}
	p.change(func() { p.triggers = append(p.triggers, m) })
	return done
}

// LoseReply forwards the next request that matches and drops the answer of the
// server. Then it resets the connection, or leaves it open without traffic. The
// channel is closed when the answer has been dropped: by then the server has
// executed the request.
func (p *Proxy) LoseReply(match func(request []byte) bool, reset bool) (lost <-chan struct{}) {
	done := make(chan struct{})
	p.OnRequest(match, func(c *Conn) {
		c.dropReplies(sync.OnceFunc(func() {
			if reset {
				c.Reset()
			}
			close(done)
		}))
	})
	return done
}

// Arrive waits until all requests have arrived at the server. It reports whether that happened within
// limit.
func (p *Proxy) Arrive(limit time.Duration) bool {
	return p.await(limit, func() bool {
		for c := range p.conns {
			if len(c.streams[Requests].queue) > 0 {
				return false
			}
		}
		return true
	})
}

// Settle waits until all requests have arrived and the server has answered on
// every connection, or closed it. It is for protocols in which every request is
// answered. It reports whether that happened within limit.
func (p *Proxy) Settle(limit time.Duration) bool {
	return p.await(limit, func() bool {
		for c := range p.conns {
			if c.owed || len(c.streams[Requests].queue) > 0 {
				return false
			}
		}
		return true
	})
}

// Held waits until the proxy holds something in direction d, and reports whether
// that happened within limit.
func (p *Proxy) Held(d Direction, limit time.Duration) bool {
	return p.await(limit, func() bool {
		for c := range p.conns {
			if p.held[d] && len(c.streams[d].queue) > 0 {
				return true
			}
		}
		return false
	})
}

// await waits until reached, which reads what Proxy.mu guards, returns true. It reports whether that
// happened within limit.
func (p *Proxy) await(limit time.Duration, reached func() bool) bool {
	expired := false
	defer time.AfterFunc(limit, func() { p.change(func() { expired = true }) }).Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !expired {
		if reached() {
			return true
		}
		p.changed.Wait()
	}
	return false
}

// Redirect forwards new connections to another server, like a DNS name or an
// address that moves. Open connections stay with their server.
func (p *Proxy) Redirect(target string) { p.change(func() { p.target = target }) }

// Connections returns the number of open connections.
func (p *Proxy) Connections() int { return len(p.all()) }

func (p *Proxy) all() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*Conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

func (p *Proxy) currentTarget() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// accept serves clients until the proxy is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &Conn{proxy: p, client: client.(*net.TCPConn)}
		closed := false
		p.change(func() {
			p.conns[c] = struct{}{}
			c.hangs = p.hangs
			closed = p.closed
		})
		if closed {
			c.Reset()
			return
		}
		p.work.Go(c.serve)
	}
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.change(func() { p.closed = true })
	p.listener.Close()
	p.Reset()
	p.work.Wait()
}
