package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/go-zookeeper/zk"
)

// connector keeps a connection with a session. The client connects again by itself, and
// opens a new session when one has ended.
type connector struct {
	conn    *zk.Conn
	opts    *Options
	closing <-chan struct{} // closed when Close begins
	ended   <-chan zk.Event // closed when the client has ended
	timeout atomic.Int64    // of the session: the requested one, then the granted one

	prepared      atomic.Bool
	preparing     sync.Mutex
	authenticated bool // guarded by preparing

	connMu   sync.Mutex
	last     *serverConn   // the last one that was dialled
	up       bool          // there is a connection with a session
	changed  chan struct{} // closed when up or lastErr changes
	lastErr  error         // why the last connection failed
	servers  int           // how many there are
	failures int           // attempts to connect in a row that failed
	everUp   bool          // there was a session
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
			return c.dialled(dialer.Dial(network, address))
		}
		conn, err := tls.DialWithDialer(&dialer, network, address, opts.TLS)
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s ends the TLS handshake (does it speak TLS?): %w", address, err)
		}
		return c.dialled(conn, err)
	}
	c.conn, c.ended, err = zk.Connect(servers, opts.Timeout,
		zk.WithDialer(dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(handle),
		zk.WithLogger(noLog{}), zk.WithMaxConnBufferSize(sendBuffer))
	return err
}

// dialled notes a new connection. It closes the last, which an expired session leaves open.
func (c *connector) dialled(conn net.Conn, err error) (net.Conn, error) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	if c.last != nil {
		_ = c.last.Close() // it has ended either way
		c.last = nil
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

// noGreeting notes that a new connection ended without an answer of the server. That is no reason
// to fail at once: servers that elect a leader close connections, too.
func (c *connector) noGreeting(err error) {
	reason := "it closes them: it has no quorum, or wants TLS"
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, net.ErrClosed) || ok && timeout.Timeout() {
		reason = fmt.Sprintf("it hangs, wants TLS, or needs longer than a session timeout of %v allows", c.opts.Timeout)
	}
	c.connMu.Lock()
	defer c.connMu.Unlock()
	c.lastErr = fmt.Errorf("a server accepts connections and no sessions (%s): %w", reason, err)
	c.notifyLocked()
}

// sessionTimeout returns the timeout that the server has granted.
func (c *connector) sessionTimeout() time.Duration { return time.Duration(c.timeout.Load()) }

// promise returns for how long a lock can be promised if the leader confirmed the session age
// ago. The leader may count from half a tick earlier, and the timeout is at least two ticks.
func (c *connector) promise(ttl, age time.Duration) time.Duration {
	return min(ttl, c.sessionTimeout()*3/4-age)
}

// setConnected notes whether there is a connection with a session.
func (c *connector) setConnected(up bool) {
	c.connMu.Lock()
	defer c.connMu.Unlock()
	if c.up != up {
		c.up, c.everUp = up, c.everUp || up
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

// connected blocks until there is a connection with a session. If there never was one and
// all servers refused, it fails at once: the address is likely wrong.
func (c *connector) connected(ctx context.Context) error {
	var limit <-chan time.Time
	for {
		c.connMu.Lock()
		up, changed, err := c.up, c.changed, cmp.Or(c.lastErr, errNoSession)
		refused := !c.everUp && c.failures >= c.servers
		c.connMu.Unlock()
		if up {
			return nil
		}
		if refused {
			return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
		}
		if limit == nil {
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

// interrupted returns the error of a call whose context has ended. Without a connection
// the reason for that says more.
func (c *connector) interrupted(ctx context.Context) error {
	if err := c.connected(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnreachable, context.Cause(ctx))
}

// attempts is how often persist calls a function that fails on a working connection.
const attempts = 5

// persist calls f, which must be repeatable, until it succeeds or connectLimit has passed.
// While servers elect a leader, connections may break many times in a row.
func (c *connector) persist(ctx context.Context, f func() error) error {
	pause := backoff.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	begin := time.Now()
	for failed := 0; ; {
		if err := c.connected(ctx); err != nil {
			return err
		}
		err := f()
		if !isAny(err, zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved) {
			failed++
		}
		if !isUnknown(err) || failed == attempts || time.Since(begin) > connectLimit {
			return err
		}
		if pause.Wait(ctx) != nil {
			return c.interrupted(ctx)
		}
	}
}

// prepare authenticates and finds the root before the first call. Calls fail until it
// succeeds.
func (s *Store) prepare(ctx context.Context) error {
	if s.prepared.Load() {
		return nil
	}
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared.Load() {
		return nil
	}
	if user := s.opts.User; user != "" && !s.authenticated {
		if err := s.conn.AddAuth("digest", []byte(user+":"+s.opts.Password)); err != nil {
			return explain("authenticating", err)
		}
		s.authenticated = true // the client repeats it on new connections
	}
	if err := s.persist(ctx, s.ensureRoot); err != nil {
		return explain("looking for the root", err)
	}
	s.prepared.Store(true)
	return nil
}

// ensureRoot makes sure that the root exists.
func (s *Store) ensureRoot() error {
	exists, _, err := s.conn.Exists(s.rootPath())
	switch {
	case err != nil || exists:
		return err
	case s.opts.RequireRoot:
		return fmt.Errorf("%w: %s", errNoRoot, s.rootPath())
	}
	path := ""
	for segment := range strings.SplitSeq(s.root[1:], "/") {
		path += "/" + segment
		if _, err := s.conn.Create(path, nil, zk.FlagPersistent, s.opts.ACL); unless(err, zk.ErrNodeExists) != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
	}
	return nil
}

// disconnect ends the session and waits for the client's goroutines.
func (c *connector) disconnect() {
	c.conn.Close()
	c.connMu.Lock()
	if c.last != nil {
		_ = c.last.Close() // the server has ended the session, or cannot be reached
	}
	c.connMu.Unlock()
	for range c.ended {
	}
}

// handle receives the events of the session and of watched nodes. The client keeps the
// order of events and answers. handle must not block.
func (s *Store) handle(event zk.Event) {
	switch {
	case event.Type != zk.EventSession:
		s.nodeEvent(event)
	case event.State == zk.StateHasSession:
		s.sessionBegan(s.conn.SessionID())
	case event.State == zk.StateExpired:
		s.sessionEnded()
		s.setConnected(false)
	case event.State == zk.StateDisconnected, event.State == zk.StateConnecting:
		s.setConnected(false)
	}
}

// sessionBegan notes a session, new or resumed on another connection. It wakes all waiters,
// and the next renewals read the holders' nodes: the store may have missed events.
func (s *Store) sessionBegan(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session.Store(id)
	s.connections.Add(1)
	s.setConnected(true)
	s.wakeAllLocked()
}

// sessionEnded notes that the nodes of all acquisitions are gone.
func (s *Store) sessionEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session.Store(0)
	clear(s.watches)
	for _, a := range s.acquisitions {
		s.nodeVanishedLocked(a)
		clear(a.watching)
	}
	s.wakeAllLocked()
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

// Next returns the next server. The client pauses before a server that it has tried
// before, but not before its first attempt to reach the only one again.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.list[h.next]
	h.next = (h.next + 1) % len(h.list)
	h.tried++
	return server, h.tried > len(h.list) && h.tried%len(h.list) == 1%len(h.list)
}

func (h *hosts) Connected() { h.tried = 0 }
