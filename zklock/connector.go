package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/go-zookeeper/zk"
)

// connector holds the ZooKeeper client and the state of its connection. The client connects again
// by itself, and opens a new session when one has ended.
type connector struct {
	conn    *zk.Conn
	opts    *Options
	closing <-chan struct{} // closed when Close begins
	ended   <-chan zk.Event // closed when the client has ended
	timeout atomic.Int64    // of the session: the requested one, then the granted one
	clock   *clock.Clock

	preparing               sync.Mutex
	authenticated, prepared bool // guarded by preparing

	connMu     sync.Mutex
	last       *serverConn   // the last one that was dialled
	current    *serverConn   // the last one with a session
	hasSession bool          // there is a connection with a session
	hadSession bool          // there was one
	changed    chan struct{} // closed when hasSession or lastErr changes
	lastErr    error         // why the last connection failed
	servers    int           // how many there are
	failures   int           // dials in a row that failed
}

// noLog drops the client's log: its errors are returned.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

// sendBuffer is large enough for every request, and for the watches that the client
// restores after a reconnection.
const sendBuffer = 256 << 10

func (c *connector) connect(servers []string, opts *Options, closing <-chan struct{}, handle func(zk.Event)) (err error) {
	c.servers, c.opts, c.closing, c.changed = len(servers), opts, closing, make(chan struct{})
	c.timeout.Store(int64(opts.Timeout))
	started := make(chan struct{})
	defer close(started)
	dial := func(network, address string, limit time.Duration) (net.Conn, error) {
		<-started // handle needs c.conn
		dialer := net.Dialer{Timeout: limit}
		if opts.TLS == nil {
			return c.noteDialled(dialer.Dial(network, address))
		}
		conn, err := tls.DialWithDialer(&dialer, network, address, opts.TLS)
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s ends the TLS handshake (does it speak TLS?): %w", address, err)
		}
		return c.noteDialled(conn, err)
	}
	c.conn, c.ended, err = zk.Connect(servers, opts.Timeout,
		zk.WithDialer(dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(handle),
		zk.WithLogger(noLog{}), zk.WithMaxConnBufferSize(sendBuffer))
	return err
}

// noteDialled notes a new connection. It closes the last, which an expired session leaves open.
func (c *connector) noteDialled(conn net.Conn, err error) (net.Conn, error) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	if c.last != nil {
		_ = c.last.Close() // it has ended either way
		c.last = nil
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = fmt.Errorf("the server closes new connections (it has %s?): %w", manyConnections, err)
	}
	if err != nil {
		c.lastErr = err
		c.failures++
		c.notifyLocked()
		return nil, err
	}
	c.failures = 0
	c.last = newServerConn(conn, c)
	return c.last, nil
}

// manyConnections is what makes a server close a new connection at once.
const manyConnections = "as many connections from this address as its maxClientCnxns allows, 60 by default"

// noConnectResponse notes that a new connection ended before the server answered the request for a
// session. That is no reason to fail at once: servers that elect a leader close connections, too.
func (c *connector) noConnectResponse(server net.Addr, err error) {
	reason := "it closes the connection: it has no quorum, wants TLS, or has " + manyConnections
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, net.ErrClosed) || ok && timeout.Timeout() {
		reason = fmt.Sprintf("it hangs, wants TLS, or needs longer than a session timeout of %v allows", c.opts.Timeout)
	}
	c.connMu.Lock()
	defer c.connMu.Unlock()
	c.lastErr = fmt.Errorf("%s accepts connections but opens no session (%s): %w", server, reason, err)
	c.notifyLocked()
}

// sessionTimeout returns the timeout that the server has granted.
func (c *connector) sessionTimeout() time.Duration { return time.Duration(c.timeout.Load()) }

// promise returns for how long a lock can be promised if the leader confirmed the session age
// ago. The leader may count from half a tick earlier, and the timeout is at least two ticks unless
// minSessionTimeout was lowered.
func (c *connector) promise(ttl, age time.Duration) time.Duration {
	return min(ttl, c.sessionTimeout()*3/4-age)
}

// remaining returns for how long the session lasts at least if no other request reaches the leader,
// which answered a request that was sent at confirmed. That request does not prolong the session: a
// follower reports its clients to the leader every half tick, and may die before it does. So the
// leader counts the timeout from the last request before that half tick, or from the first request
// of the connection, which it handles itself. The client may have sent nothing for a third of the
// timeout.
func (c *connector) remaining(confirmed clock.Instant) time.Duration {
	c.connMu.Lock()
	conn := c.current
	c.connMu.Unlock()
	timeout := c.sessionTimeout()
	return conn.lastSent(confirmed-timeout/4) + timeout - c.clock.Now()
}

func (c *connector) setConnected(hasSession bool) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	if c.hasSession != hasSession {
		c.hasSession, c.hadSession = hasSession, c.hadSession || hasSession
		c.notifyLocked()
	}
}

// notifyLocked wakes the calls that wait for a connection.
func (c *connector) notifyLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// connectLimit is how long a call waits for a connection if its caller sets no limit.
const connectLimit = 5 * time.Second

var errNoSession = errors.New("no session with a server")

// waitConnected blocks until there is a connection with a session. If there never was one and
// all servers refused, it fails at once: the address is likely wrong.
func (c *connector) waitConnected(ctx context.Context) error {
	var limit <-chan time.Time
	for {
		c.connMu.Lock()
		connected, changed, err := c.hasSession, c.changed, cmp.Or(c.lastErr, errNoSession)
		refused := !c.hadSession && c.failures >= c.servers
		c.connMu.Unlock()
		if connected {
			return nil
		}
		if refused {
			return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
		}
		if _, ok := ctx.Deadline(); !ok && limit == nil {
			limit = time.After(connectLimit)
		}
		select {
		case <-changed:
		case <-c.closing:
			return driver.ErrClosed
		case <-limit:
			return fmt.Errorf("%w: %w within %v", driver.ErrUnreachable, err, connectLimit)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %w", driver.ErrUnreachable, err, context.Cause(ctx))
		}
	}
}

// contextError returns the error of a call whose context has ended. If there is no connection, it
// returns the reason, which says more.
func (c *connector) contextError(ctx context.Context) error {
	if err := c.waitConnected(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnreachable, context.Cause(ctx))
}

// maxFailures is how often retry calls a function that fails on a working connection.
const maxFailures = 5

// retry calls f, which must be repeatable, until its outcome is known or the time is over: that of
// ctx or, if it has no deadline, connectLimit. While servers elect a leader, connections may break
// many times in a row.
func (c *connector) retry(ctx context.Context, f func() error) error {
	pause := backoff.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	begin := time.Now()
	_, limited := ctx.Deadline()
	for failed := 0; ; {
		if err := c.waitConnected(ctx); err != nil {
			return err
		}
		err := f()
		if !isAny(err, zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved) {
			failed++
		}
		if isOutcomeKnown(err) || failed == maxFailures || !limited && time.Since(begin) > connectLimit {
			return err
		}
		if pause.Wait(ctx) != nil {
			return c.contextError(ctx)
		}
	}
}

// disconnect ends the session and waits for the client's goroutines, but not for a client that hangs.
func (c *connector) disconnect() {
	c.conn.Close()
	c.connMu.Lock()
	if c.last != nil {
		_ = c.last.Close() // the server has ended the session, or cannot be reached
	}
	c.connMu.Unlock()
	limit := time.After(closeLimit)
	for {
		select {
		case _, open := <-c.ended:
			if !open {
				return
			}
		case <-limit:
			return
		}
	}
}

// serverConn is a connection to a server. It reads the granted timeout, which the client does
// not report, from the server's first answer. It closes itself if the server does not answer, while
// there is time to ask another server: the client would wait for most of the timeout.
type serverConn struct {
	net.Conn
	connector       *connector
	connectResponse []byte // the beginning of the server's first answer

	mu       sync.Mutex
	awaiting bool            // a request was sent, and nothing was received since
	timer    *time.Timer     // runs while awaiting: changed together with it
	sent     []clock.Instant // when requests were sent, the first of all and the latest
}

func newServerConn(conn net.Conn, cn *connector) *serverConn {
	c := &serverConn{Conn: conn, connector: cn}
	c.timer = time.AfterFunc(time.Hour, func() { _ = conn.Close() })
	c.timer.Stop()
	return c
}

// maxAnswerLimit is the longest time for an answer. A quarter of the session's timeout is the limit if
// that is shorter. So another server can be asked before a lock is lost, and a call that is
// repeated over another connection ends within connectLimit.
const maxAnswerLimit = 4 * time.Second

func (c *connector) answerLimit() time.Duration { return min(c.sessionTimeout()/4, maxAnswerLimit) }

// limitAnswer closes the connection unless the returned function is called in time. Requests for the
// leader need a limit of their own: a follower that does not hear the leader still answers the
// requests before them, which ends the limit of the connection.
func (c *connector) limitAnswer() (answered func() bool) {
	c.connMu.Lock()
	conn := c.current
	c.connMu.Unlock()
	return time.AfterFunc(c.answerLimit(), func() { _ = conn.Close() }).Stop
}

func (c *serverConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.noteSentLocked(c.connector.clock.NoLaterThanNow())
	if !c.awaiting {
		c.awaiting = true
		c.timer.Reset(c.connector.answerLimit())
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// sentParts is how many requests a serverConn remembers: one for each part of the session's timeout.
const sentParts = 64

func (c *serverConn) noteSentLocked(now clock.Instant) {
	n := len(c.sent)
	switch {
	case n > 0 && now-c.sent[n-1] < c.connector.sessionTimeout()/sentParts:
		return
	case n == sentParts:
		c.sent = slices.Delete(c.sent, 1, 2)
	}
	c.sent = append(c.sent, now)
}

// lastSent returns when the last request until an instant was sent, or the first one if all are later.
func (c *serverConn) lastSent(until clock.Instant) clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.sent[0]
	for _, sent := range c.sent {
		if sent <= until {
			last = max(last, sent)
		}
	}
	return last
}

func (c *serverConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		if c.awaiting {
			c.awaiting = false
			c.timer.Stop()
		}
		c.mu.Unlock()
	}
	if len(c.connectResponse) < connectResponseBytes {
		c.readConnectResponse(b[:n], err)
	}
	return n, err
}

func (c *serverConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// connectResponseBytes is how much of a server's first answer is read: its length, a version and
// the timeout in milliseconds, four bytes each. A timeout of zero rejects the session.
const connectResponseBytes = 12

func (c *serverConn) readConnectResponse(b []byte, err error) {
	c.connectResponse = append(c.connectResponse, b[:min(len(b), connectResponseBytes-len(c.connectResponse))]...)
	if len(c.connectResponse) < connectResponseBytes {
		if err != nil {
			c.connector.noConnectResponse(c.RemoteAddr(), err)
		}
		return
	}
	if ms := binary.BigEndian.Uint32(c.connectResponse[8:]); ms > 0 {
		c.connector.timeout.Store(int64(time.Duration(ms) * time.Millisecond))
		c.connector.connMu.Lock()
		defer c.connector.connMu.Unlock()
		c.connector.current = c
	}
}

// hosts implements zk.HostProvider for the goroutine of the client that connects. Unlike the
// client's own it resolves names when they are dialled, because addresses change.
type hosts struct {
	list  []string
	next  int
	tried int // since the last connection
}

func (h *hosts) Init(servers []string) error {
	h.list = servers
	return nil
}

func (h *hosts) Len() int { return len(h.list) }

// Next returns the next server. retryStart makes the client pause for a second: once per round
// through all servers, but not in the first round after a connection.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.list[h.next]
	h.next = (h.next + 1) % len(h.list)
	h.tried++
	return server, h.tried > len(h.list) && h.tried%len(h.list) == 1%len(h.list)
}

func (h *hosts) Connected() { h.tried = 0 }
