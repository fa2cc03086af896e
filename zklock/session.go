package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/go-zookeeper/zk"
)

// session is the connection to the servers, and what is known of it. The client
// connects again by itself, and opens a new session when one has ended.
type session struct {
	conn    *zk.Conn
	opts    *Options
	closing <-chan struct{} // closed when Close begins
	ended   <-chan zk.Event // closed when the client has ended
	timeout atomic.Int64    // of the session: what was asked for, then what was granted

	link     sync.Mutex
	last     *line         // that was dialled
	up       bool          // there is a session and a connection
	changed  chan struct{} // closed when up changes
	lastErr  error         // why the last connection failed
	servers  int           // how many there are
	refusals int           // attempts to connect in a row that failed
	met      bool          // there was a session
	prepared atomic.Bool
	first    sync.Mutex // held while it is prepared
	// introduced says, guarded by first, that the user was told to the server.
	introduced bool
}

func (s *session) init(opts *Options, closing <-chan struct{}) {
	s.opts, s.closing = opts, closing
	s.changed = make(chan struct{})
	s.timeout.Store(int64(opts.Timeout))
}

// silent drops the client's log: what matters comes back as an error.
type silent struct{}

func (silent) Printf(string, ...any) {}

// sendBuffer is enough for everything that is sent here, and for the watches that
// the client sends again after a reconnection.
const sendBuffer = 256 << 10

func (s *session) connect(servers []string, config *tls.Config, handle func(zk.Event)) error {
	s.servers = len(servers)
	started := make(chan struct{})
	defer close(started)
	dial := func(network, address string, limit time.Duration) (net.Conn, error) {
		<-started // so that whoever is told of a session finds s.conn
		conn, err := dialServer(network, address, limit, config)
		return s.dialled(conn, err)
	}
	var err error
	s.conn, s.ended, err = zk.Connect(servers, s.opts.Timeout,
		zk.WithDialer(dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(handle),
		zk.WithLogger(silent{}), zk.WithMaxConnBufferSize(sendBuffer))
	return err
}

func dialServer(network, address string, limit time.Duration, config *tls.Config) (net.Conn, error) {
	dialer := net.Dialer{Timeout: limit}
	if config == nil {
		return dialer.Dial(network, address)
	}
	return tls.DialWithDialer(&dialer, network, address, config)
}

// dialled takes note of a new connection. The one before is closed: the client
// forgets it when its session has expired.
func (s *session) dialled(conn net.Conn, err error) (net.Conn, error) {
	s.link.Lock()
	defer s.link.Unlock()
	if s.last != nil {
		_ = s.last.Close() // it is over either way
		s.last = nil
	}
	if err != nil {
		s.lastErr = err
		if s.refusals++; s.refusals == s.servers {
			s.notifyLocked()
		}
		return nil, err
	}
	s.refusals = 0
	s.last = newLine(conn, s)
	return s.last, nil
}

// refused takes note that a server hung up on a new connection.
func (s *session) refused(err error) {
	s.link.Lock()
	defer s.link.Unlock()
	s.lastErr = fmt.Errorf("a server accepts connections and no sessions (it has no quorum, hangs, or wants TLS): %w", err)
}

// sessionTimeout is the one that the server has granted.
func (s *session) sessionTimeout() time.Duration { return time.Duration(s.timeout.Load()) }

// promise is how long a lock can be promised to last in a session that the leader knew
// so long ago. It may have heard of us half a tick later than we think, and the timeout is
// at least two ticks.
func (s *session) promise(ttl, age time.Duration) time.Duration {
	return min(ttl, s.sessionTimeout()*3/4-age)
}

// setUp takes note that there is a connection with a session, or none.
func (s *session) setUp(up bool) {
	s.link.Lock()
	defer s.link.Unlock()
	if s.up != up {
		s.up = up
		s.met = s.met || up
		s.notifyLocked()
	}
}

// notifyLocked wakes the calls that wait for a connection.
func (s *session) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// expectWatches prepares the new connection for watches that are set again.
func (s *session) expectWatches() {
	s.link.Lock()
	defer s.link.Unlock()
	if s.last != nil {
		s.last.watches.expect()
	}
}

// connectLimit is how long to wait for a connection where the caller sets no limit.
const connectLimit = 5 * time.Second

// errNoSession is why a call fails that no server refused.
var errNoSession = errors.New("no session with a server")

// connected waits for a connection with a session. It does not wait if all servers
// have refused and there never was a session: the address is likely wrong. Servers that
// refuse later are likely restarting.
func (s *session) connected(ctx context.Context) error {
	var limit <-chan time.Time
	for {
		s.link.Lock()
		up, changed, err := s.up, s.changed, s.lastErr
		refused := !s.met && s.refusals >= s.servers
		s.link.Unlock()
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

// interrupted is the error of a call whose context is done: the reason why there is
// no connection, if there is none, says more.
func (s *session) interrupted(ctx context.Context) error {
	if err := s.connected(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// attempts is how often something is tried that the server answers with an error of
// its own.
const attempts = 5

// persist calls f, which may be done twice, again when the connection broke under it,
// until it could not be done within the time in which a connection must be found. A
// connection may break many times in a row while servers elect a leader.
func (s *session) persist(ctx context.Context, f func() error) error {
	pause := backoff.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	begin := time.Now()
	for failed := 0; ; {
		if err := s.connected(ctx); err != nil {
			return err
		}
		err := f()
		if !broken(err) {
			failed++
		}
		if !inDoubt(err) || failed == attempts || time.Since(begin) > connectLimit {
			return err
		}
		select {
		case <-time.After(pause.Next()):
		case <-s.closing:
			return driver.ErrClosed
		case <-ctx.Done():
			return s.interrupted(ctx)
		}
	}
}

// prepare does what the first call needs, once: it authenticates and looks for the
// root. Errors of it are told to everybody until it works.
func (s *Store) prepare(ctx context.Context) error {
	if s.prepared.Load() {
		return nil
	}
	s.first.Lock()
	defer s.first.Unlock()
	if s.prepared.Load() {
		return nil
	}
	if err := s.connected(ctx); err != nil {
		return err
	}
	if user := s.opts.User; user != "" && !s.introduced {
		if err := s.conn.AddAuth("digest", []byte(user+":"+s.opts.Password)); err != nil {
			return explain("authenticating", err)
		}
		s.introduced = true // the client does it again by itself
	}
	if err := s.persist(ctx, s.findRoot); err != nil {
		return explain("looking for the root", err)
	}
	s.prepared.Store(true)
	return nil
}

func (s *Store) findRoot() error {
	there, _, err := s.conn.Exists(s.rootPath())
	switch {
	case err != nil:
		return err
	case there:
		return nil
	case s.opts.RequireRoot:
		return s.noRoot()
	}
	for i := range s.root {
		if end := i + 1; end < len(s.root) && s.root[end] != '/' {
			continue
		}
		path := s.root[:i+1]
		if _, err := s.conn.Create(path, nil, zk.FlagPersistent, s.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("creating %s: %w", path, err)
		}
	}
	return nil
}

func (s *Store) noRoot() error { return fmt.Errorf("%w: %s", errNoRoot, s.rootPath()) }

// hangUp ends the session and waits for the client's goroutines.
func (s *session) hangUp() {
	s.conn.Close()
	s.link.Lock()
	if s.last != nil {
		_ = s.last.Close() // the server has ended the session, or cannot be reached
	}
	s.link.Unlock()
	for range s.ended {
	}
}

// hosts hands the client one server after the other. Unlike the client's own it
// resolves names when they are dialled, because addresses change.
type hosts struct {
	mu    sync.Mutex
	list  []string
	next  int
	tried int // since one worked
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.list = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.list) }

// Next implements zk.HostProvider. The client pauses before a server that it has tried
// before, but not before the first attempt to find the only one again.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.list[h.next]
	h.next = (h.next + 1) % len(h.list)
	h.tried++
	return server, h.tried > len(h.list) && h.tried%len(h.list) == 1%len(h.list)
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}
