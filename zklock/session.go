package zklock

import (
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

// session is the client with its connection. The client connects again by itself, and
// opens a new session when one has ended.
type session struct {
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
	changed  chan struct{} // closed when up changes
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

func (s *session) connect(servers []string, opts *Options, closing <-chan struct{}, handle func(zk.Event)) (err error) {
	s.servers, s.opts, s.closing, s.changed = len(servers), opts, closing, make(chan struct{})
	s.timeout.Store(int64(opts.Timeout))
	started := make(chan struct{})
	defer close(started)
	dial := func(network, address string, limit time.Duration) (net.Conn, error) {
		<-started // handle needs s.conn
		dialer := net.Dialer{Timeout: limit}
		if opts.TLS == nil {
			return s.dialled(dialer.Dial(network, address))
		}
		conn, err := tls.DialWithDialer(&dialer, network, address, opts.TLS)
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s ends the TLS handshake (does it speak TLS?): %w", address, err)
		}
		return s.dialled(conn, err)
	}
	s.conn, s.ended, err = zk.Connect(servers, opts.Timeout,
		zk.WithDialer(dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(handle),
		zk.WithLogger(noLog{}), zk.WithMaxConnBufferSize(sendBuffer))
	return err
}

// dialled notes a new connection. It closes the last, which an expired session leaves open.
func (s *session) dialled(conn net.Conn, err error) (net.Conn, error) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if s.last != nil {
		_ = s.last.Close() // it has ended either way
		s.last = nil
	}
	if err != nil {
		s.lastErr = err
		if s.failures++; s.failures == s.servers {
			s.notifyLocked()
		}
		return nil, err
	}
	s.failures = 0
	s.last = newServerConn(conn, s)
	return s.last, nil
}

// noGreeting notes that a new connection ended without an answer of the server. That is no reason
// to fail at once: servers that elect a leader close connections, too.
func (s *session) noGreeting(err error) {
	reason := "it closes them: it has no quorum, or wants TLS"
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, net.ErrClosed) || ok && timeout.Timeout() {
		reason = fmt.Sprintf("it hangs, wants TLS, or needs longer than a session timeout of %v allows", s.opts.Timeout)
	}
	s.connMu.Lock()
	defer s.connMu.Unlock()
	s.lastErr = fmt.Errorf("a server accepts connections and no sessions (%s): %w", reason, err)
}

// sessionTimeout returns the timeout that the server has granted.
func (s *session) sessionTimeout() time.Duration { return time.Duration(s.timeout.Load()) }

// promise returns for how long a lock can be promised if the leader confirmed the session age
// ago. The leader may count from half a tick earlier, and the timeout is at least two ticks.
func (s *session) promise(ttl, age time.Duration) time.Duration {
	return min(ttl, s.sessionTimeout()*3/4-age)
}

// setConnected notes whether there is a connection with a session.
func (s *session) setConnected(up bool) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if s.up != up {
		s.up, s.everUp = up, s.everUp || up
		s.notifyLocked()
	}
}

// notifyLocked wakes the calls that wait for a connection.
func (s *session) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// expectWatches prepares the new connection for watches that the client restores.
func (s *session) expectWatches() {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if s.last != nil {
		s.last.restore.expect()
	}
}

// connectLimit is how long a call waits for a connection if its caller sets no limit.
const connectLimit = 5 * time.Second

var errNoSession = errors.New("no session with a server")

// connected blocks until there is a connection with a session. If there never was one and
// all servers refused, it fails at once: the address is likely wrong.
func (s *session) connected(ctx context.Context) error {
	var limit <-chan time.Time
	for {
		s.connMu.Lock()
		up, changed, err := s.up, s.changed, s.lastErr
		refused := !s.everUp && s.failures >= s.servers
		s.connMu.Unlock()
		if up {
			return nil
		}
		if refused {
			return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
		}
		if limit == nil {
			limit = time.After(connectLimit)
		}
		if err == nil {
			err = errNoSession
		}
		select {
		case <-changed:
		case <-s.closing:
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
func (s *session) interrupted(ctx context.Context) error {
	if err := s.connected(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnreachable, context.Cause(ctx))
}

// attempts is how often persist calls a function that fails on a working connection.
const attempts = 5

// persist calls f, which must be repeatable, until it succeeds or connectLimit has passed.
// While servers elect a leader, connections may break many times in a row.
func (s *session) persist(ctx context.Context, f func() error) error {
	pause := backoff.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	begin := time.Now()
	for failed := 0; ; {
		if err := s.connected(ctx); err != nil {
			return err
		}
		err := f()
		if !isDisconnect(err) {
			failed++
		}
		if !isUnknown(err) || failed == attempts || time.Since(begin) > connectLimit {
			return err
		}
		if pause.Wait(ctx) != nil {
			return s.interrupted(ctx)
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
		if _, err := s.conn.Create(path, nil, zk.FlagPersistent, s.acl); unless(err, zk.ErrNodeExists) != nil {
			return fmt.Errorf("creating %s: %w", path, err)
		}
	}
	return nil
}

// disconnect ends the session and waits for the client's goroutines.
func (s *session) disconnect() {
	s.conn.Close()
	s.connMu.Lock()
	if s.last != nil {
		_ = s.last.Close() // the server has ended the session, or cannot be reached
	}
	s.connMu.Unlock()
	for range s.ended {
	}
}

// handle receives the events of the session and of watched nodes. The client keeps the
// order of events and answers. handle must not block.
func (s *Store) handle(event zk.Event) {
	if event.Type != zk.EventSession {
		if event.Path != "" {
			s.nodeEvent(event)
		}
		return
	}
	switch event.State {
	case zk.StateHasSession:
		s.sessionBegan(s.conn.SessionID())
	case zk.StateExpired:
		s.sessionEnded()
		s.setConnected(false)
	case zk.StateDisconnected, zk.StateConnecting:
		s.setConnected(false)
	default: // on the way to a session
	}
}

// sessionBegan notes a session, new or resumed on another connection. It wakes all waiters,
// and the next renewals read the holders' nodes: the store may have missed events.
func (s *Store) sessionBegan(id int64) {
	if old := s.live.Load(); old != 0 && old != id {
		s.sessionEnded()
	}
	s.mu.Lock()
	s.live.Store(id)
	s.connection.Add(1)
	wakeUps := s.wakeUpsLocked()
	watches := len(s.watches) > 0
	s.mu.Unlock()
	if watches {
		s.expectWatches()
	}
	s.setConnected(true)
	callAll(wakeUps)
}

// sessionEnded notes that the nodes of all acquisitions are gone.
func (s *Store) sessionEnded() {
	s.mu.Lock()
	s.live.Store(0)
	clear(s.watches)
	var calls []func()
	for _, a := range s.acquisitions {
		if lost := s.nodeVanishedLocked(a); lost != nil {
			calls = append(calls, lost)
		}
		clear(a.watching)
	}
	calls = append(calls, s.wakeUpsLocked()...)
	s.mu.Unlock()
	callAll(calls)
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
