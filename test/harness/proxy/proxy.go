// Package proxy stands between a client and a server, on loopback, and does to
// their connections what networks do: hold what is sent and deliver it later,
// lose replies, reset, hang, delay. It does so at an exact moment: when a
// certain request comes by.
//
// What was sent is not lost by a hold, also if the sender hangs up meanwhile:
// it is in the network, and arrives when the network delivers it.
package proxy

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one half of a connection.
type Direction int

// The directions.
const (
	Requests Direction = iota // from the client to the server
	Replies                   // from the server to the client
)

// Proxy passes connections on to a server. Its methods may be called at any
// time, from any goroutine.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // anything below has changed
	target  string
	held    [2]bool // by Direction
	hangs   bool
	delay   time.Duration
	moments []*moment
	conns   map[*Conn]struct{}
	closed  bool
}

// moment is something to do when a request comes by.
type moment struct {
	match func(request []byte) bool
	do    func(c *Conn)
}

// Run starts a proxy to the server at target for a test, and ends it, with all
// its connections, when the test is over.
func Run(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: listener, conns: make(map[*Conn]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients find the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hold lets nothing pass any more in these directions, in both if none is given,
// on all connections there are and will be. Senders do not notice.
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

// Deliver ends Hold: what was held passes first.
func (p *Proxy) Deliver() { p.change(func() { p.held = [2]bool{} }) }

// Hang makes new connections be accepted and nothing more: nobody reads from
// them, until a Reset ends them.
func (p *Proxy) Hang(hangs bool) { p.change(func() { p.hangs = hangs }) }

// Silence lets nothing pass any more on the connections there are, as a router does
// that has forgotten them. New ones work.
func (p *Proxy) Silence() {
	all := p.all()
	p.change(func() {
		for _, c := range all {
			c.silent = true
		}
	})
}

// Lag holds what is sent to the server on the connections there are, also if the
// sender hangs up meanwhile. New ones work. deliver ends that: it returns when the
// server has answered what was held, or the limit is over.
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

// Delay makes everything that is sent from now on arrive that much later.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Reset ends all connections there are as if the other side had crashed, with
// all that is held on them. New ones are accepted.
func (p *Proxy) Reset() {
	for _, c := range p.all() {
		c.Reset()
	}
}

// OnRequest calls do at the next request that matches, once, before any of it
// is passed on. A request is what a client has written at once, which is what
// clients do with what is small. The channel is closed when do has returned.
func (p *Proxy) OnRequest(match func(request []byte) bool, do func(c *Conn)) (happened <-chan struct{}) {
	done := make(chan struct{})
	m := &moment{match: match, do: func(c *Conn) {
		defer close(done)
		if do != nil {
			do(c)
		}
	}}
	p.change(func() { p.moments = append(p.moments, m) })
	return done
}

// LoseReply passes on the next request that matches, and loses what the server
// answers. Then the connection is reset, or stays open and silent. The channel is
// closed when the answer has been lost, so that the server has done its work.
func (p *Proxy) LoseReply(match func(request []byte) bool, reset bool) (lost <-chan struct{}) {
	done := make(chan struct{})
	p.OnRequest(match, func(c *Conn) {
		c.swallowing(sync.OnceFunc(func() {
			if reset {
				c.Reset()
			}
			close(done)
		}))
	})
	return done
}

// Settle waits until everything that was sent has arrived and the server has
// answered every connection, or hung up. It is for protocols in which every
// request is answered. It says whether that happened before the limit.
func (p *Proxy) Settle(limit time.Duration) bool {
	expired := false
	defer time.AfterFunc(limit, func() { p.change(func() { expired = true }) }).Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !expired {
		busy := false
		for c := range p.conns {
			busy = busy || c.owed || len(c.streams[Requests].queue) > 0
		}
		if !busy {
			return true
		}
		p.changed.Wait()
	}
	return false
}

// Held waits until something is held in that direction, and says whether that
// happened before the limit.
func (p *Proxy) Held(d Direction, limit time.Duration) bool {
	expired := false
	defer time.AfterFunc(limit, func() { p.change(func() { expired = true }) }).Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !expired {
		for c := range p.conns {
			if p.held[d] && len(c.streams[d].queue) > 0 {
				return true
			}
		}
		p.changed.Wait()
	}
	return false
}

// Redirect passes new connections on to another server, like a name or an address
// that moves. Those that are open stay where they are.
func (p *Proxy) Redirect(target string) { p.change(func() { p.target = target }) }

// Connections counts those that are open.
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

// accept serves clients until the proxy ends.
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

func (p *Proxy) close() {
	p.change(func() { p.closed = true })
	p.listener.Close()
	p.Reset()
	p.work.Wait()
}
