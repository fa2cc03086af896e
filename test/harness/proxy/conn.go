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
	client, server *net.TCPConn // server is nil until it is connected

	// Guarded by Proxy.mu.
	hangs   bool
	stalled bool
	lags    bool // requests are held
	dead    bool
	owed    bool   // a request was forwarded and no reply has arrived since
	onLoss  func() // if not nil, called instead of forwarding replies
	streams [2]stream
}

// stream is what one side has sent and the other has not received yet.
type stream struct {
	queue []chunk
	ended bool // the sender has closed its side
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// Reset ends the connection on both sides at once, and drops held bytes.
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
				_ = side.SetLinger(0) // fails only on a closed connection
			}
			_ = side.Close() // closed either way
		}
	})
}

// Hold stops the traffic on this connection in both directions. Neither side
// notices. Other connections work.
func (c *Conn) Hold() { c.proxy.change(func() { c.stalled = true }) }

// Deliver ends Hold. Held bytes are delivered first, even if the client has
// closed its connection meanwhile.
func (c *Conn) Deliver() { c.proxy.change(func() { c.stalled = false }) }

// LoseReplies drops everything that the server sends from now on. The channel is
// closed when something has been dropped.
func (c *Conn) LoseReplies() (lost <-chan struct{}) {
	done := make(chan struct{})
	c.dropReplies(sync.OnceFunc(func() { close(done) }))
	return done
}

func (c *Conn) dropReplies(lost func()) { c.proxy.change(func() { c.onLoss = lost }) }

func (c *Conn) serve() {
	if c.hangs {
		c.awaitReset()
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

// awaitReset blocks until the connection is reset.
func (c *Conn) awaitReset() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	for !c.dead {
		c.proxy.changed.Wait()
	}
}

// receive reads from one side without delay, even while traffic is held, so that
// the sender may close its connection.
func (c *Conn) receive(d Direction, from *net.TCPConn) {
	p := c.proxy
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			bytes := slices.Clone(buf[:n])
			if d == Requests {
				c.trigger(bytes)
			}
			var lost func()
			p.change(func() {
				if d == Replies {
					c.owed = false
					lost = c.onLoss
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

// trigger runs the actions that wait for this request.
func (c *Conn) trigger(request []byte) {
	var now []*trigger
	p := c.proxy
	p.change(func() {
		p.triggers = slices.DeleteFunc(p.triggers, func(m *trigger) bool {
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

// deliver writes released bytes to the other side, and closes it when the sender
// has closed its side.
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
			c.Reset() // no server is left to answer
			return
		}
	}
	_ = to.CloseWrite() // fails only on a closed connection
}

// next waits for bytes that may be delivered. They stay in the queue until they
// have been written. ok is false at the end of the stream.
func (c *Conn) next(d Direction) (bytes []byte, ok bool) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &c.streams[d]
	for {
		switch {
		case c.dead:
			return nil, false
		case p.held[d], c.stalled, c.lags && d == Requests:
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
