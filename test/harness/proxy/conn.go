package proxy

import (
	"net"
	"slices"
	"sync"
	"time"
)

// Conn is one connection of a client.
type Conn struct {
	proxy          *Proxy
	client, server *net.TCPConn // server is nil until there is one

	// guarded by Proxy.mu
	hangs   bool
	silent  bool
	lags    bool // what the client sends is held
	dead    bool
	owed    bool   // a request went to the server and nothing has come back
	swallow func() // not nil: what the server sends is lost, and this is called
	streams [2]stream
}

// stream is what one side has sent and the other has not got yet.
type stream struct {
	queue []chunk
	ended bool // the sender has hung up
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// Reset ends the connection on both sides, at once, with what is held on it.
func (c *Conn) Reset() { c.end(true) }

func (c *Conn) end(reset bool) {
	c.proxy.change(func() {
		c.dead = true
		delete(c.proxy.conns, c)
		for _, side := range []*net.TCPConn{c.client, c.server} {
			if side == nil {
				continue
			}
			if reset {
				_ = side.SetLinger(0) // a connection that is gone already needs none
			}
			_ = side.Close() // it is over either way
		}
	})
}

// Hold lets nothing pass any more on this connection, in both directions. Neither
// side notices. The other connections go on.
func (c *Conn) Hold() { c.proxy.change(func() { c.silent = true }) }

// Deliver ends Hold: what was held passes first, also if the client has hung up
// meanwhile.
func (c *Conn) Deliver() { c.proxy.change(func() { c.silent = false }) }

// LoseReplies loses everything that the server sends from now on. The channel is
// closed when something has been lost.
func (c *Conn) LoseReplies() (lost <-chan struct{}) {
	done := make(chan struct{})
	c.swallowing(sync.OnceFunc(func() { close(done) }))
	return done
}

func (c *Conn) swallowing(lost func()) { c.proxy.change(func() { c.swallow = lost }) }

func (c *Conn) serve() {
	if c.hangs {
		c.awaitDeath()
		return
	}
	server, err := net.Dial("tcp", c.proxy.currentTarget())
	if err != nil {
		c.Reset()
		return
	}
	defer c.end(false)
	alive := false
	c.proxy.change(func() {
		c.server = server.(*net.TCPConn)
		alive = !c.dead
	})
	if !alive {
		server.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { c.receive(Requests, c.client) })
	both.Go(func() { c.receive(Replies, c.server) })
	both.Go(func() { c.deliver(Requests, c.server) })
	both.Go(func() { c.deliver(Replies, c.client) })
	both.Wait()
}

// awaitDeath waits for a Reset.
func (c *Conn) awaitDeath() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	for !c.dead {
		c.proxy.changed.Wait()
	}
}

// receive takes what one side sends, at once, whether it may pass or not: who
// sent it may then go away.
func (c *Conn) receive(d Direction, from *net.TCPConn) {
	p := c.proxy
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			bytes := slices.Clone(buf[:n])
			if d == Requests {
				c.seize(bytes)
			}
			var lost func()
			p.change(func() {
				if d == Replies {
					c.owed = false
					lost = c.swallow
				}
				if lost == nil {
					s := &c.streams[d]
					s.queue = append(s.queue, chunk{bytes, time.Now().Add(p.delay)})
				}
			})
			if lost != nil {
				lost()
			}
		}
		if err != nil {
			p.change(func() {
				c.streams[d].ended = true
				if d == Replies {
					c.owed = false
				}
			})
			return
		}
	}
}

// seize does what was to be done when this request comes by.
func (c *Conn) seize(request []byte) {
	var now []*moment
	p := c.proxy
	p.change(func() {
		p.moments = slices.DeleteFunc(p.moments, func(m *moment) bool {
			if !m.match(request) {
				return false
			}
			now = append(now, m)
			return true
		})
	})
	for _, m := range now {
		m.do(c)
	}
}

// deliver gives the other side what may pass, and hangs up when the sender has.
func (c *Conn) deliver(d Direction, to *net.TCPConn) {
	for {
		bytes, ok := c.next(d)
		if !ok {
			break
		}
		_, err := to.Write(bytes)
		c.proxy.change(func() {
			s := &c.streams[d]
			if len(s.queue) > 0 {
				s.queue = s.queue[1:]
			}
		})
		if err != nil && d == Requests {
			c.Reset() // nobody is there any more who could answer
			return
		}
	}
	_ = to.CloseWrite() // unless the other side is gone already
}

// next waits for something that may pass. It stays in the queue until it has
// been written. It is not ok when nothing more will come.
func (c *Conn) next(d Direction) (bytes []byte, ok bool) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &c.streams[d]
	for {
		switch {
		case c.dead:
			return nil, false
		case p.held[d], c.silent, c.lags && d == Requests:
		case len(s.queue) > 0:
			first := s.queue[0]
			wait := time.Until(first.due)
			if wait <= 0 {
				c.owed = c.owed || d == Requests
				return first.bytes, true
			}
			timer := time.AfterFunc(wait, func() { p.change(func() {}) })
			p.changed.Wait()
			timer.Stop()
			continue
		case s.ended:
			return nil, false
		}
		p.changed.Wait()
	}
}
