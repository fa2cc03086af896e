package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/detach"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/internal/workerpool"
	"github.com/go-zookeeper/zk"
)

// Order decides which contender gets a lock.
type Order int

const (
	// Fair makes contenders queue, as Curator does.
	Fair Order = iota
	// Unfair makes all contenders try at once. It offers no fair and no shared locks and no
	// permits.
	Unfair
)

// DefaultTimeout is the session's timeout unless Options.Timeout is set.
const DefaultTimeout = 30 * time.Second

// Options of a store. The zero value is fine.
type Options struct {
	// Root is the path above the locks; default "/". The store creates a missing
	// root, also one that was removed later, as Curator does.
	Root string
	// RequireRoot makes a missing root an error instead.
	RequireRoot bool

	Order Order

	// ExclusiveOnly makes the store offer exclusive locks alone: no shared locks and no
	// permits. With the order Fair it saves the second node of every lock, and a tenth of
	// the time. But then Curator's InterProcessReadWriteLock on the same path does not see
	// the lock: set it only where no such lock is used. InterProcessMutex, and stores without
	// ExclusiveOnly, exclude it as before.
	ExclusiveOnly bool

	// Timeout is that of the session, which the server may change: by default it
	// allows 4 to 40 seconds. It is how long the locks of a process last that was
	// killed or cut off.
	Timeout time.Duration

	// User and Password are for digest authentication. ZooKeeper does not check
	// them by themselves: wrong ones show when a node's ACL refuses them.
	User, Password string

	// ACL of the nodes that are created. The default permits everything to every user, as
	// with Curator; zk.AuthACL(zk.PermAll) permits everything to User alone.
	ACL []zk.ACL

	// TLS of the connections; nil means no TLS.
	TLS *tls.Config
}

// Store keeps locks in ZooKeeper. Create one with [New] or [Open].
type Store struct {
	connector
	root     string          // without a trailing slash: empty for "/"
	location driver.Location // of a store that Open made

	workers *workerpool.Pool
	alarm   *alarm.Alarm    // wakes the janitor
	ctx     context.Context // ends when the store is closed
	cancel  context.CancelCauseFunc
	once    sync.Once

	sessionID   atomic.Int64  // zero if there is no session; mu is held for changes
	connections atomic.Uint64 // counts those that had a session; mu is held for changes

	mu          sync.Mutex
	closed      bool
	confirmed   confirmation   // the leader's last confirmation of the session
	work        sync.WaitGroup // calls and background work; mu is held for Add
	holds       map[holdID]*hold
	watches     map[string]*watchedNode // by path
	crowds      map[string]*crowd       // by the path of the container; those that have waiters
	withoutData map[string]struct{}     // paths of containers that were seen without data
}

// idleWorkers is how many goroutines stay for the next calls.
const idleWorkers = 64

// New returns a store on the servers host:port. It makes no calls: the store opens its
// session in the background. A nil opts is fine.
func New(servers []string, opts *Options) (*Store, error) {
	o := *cmp.Or(opts, &Options{})
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	root := "/" + strings.Trim(o.Root, "/")
	switch {
	case len(servers) == 0:
		return nil, errors.New("no servers")
	case o.Order != Fair && o.Order != Unfair:
		return nil, fmt.Errorf("%w: unknown order %d (want Fair or Unfair)", driver.ErrUnsupported, int(o.Order))
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		return nil, fmt.Errorf("bad session timeout %v (want %v to %v)", o.Timeout, minTimeout, maxTimeout)
	case !isPath(root):
		return nil, fmt.Errorf("bad root %q: not a path in ZooKeeper", root)
	}
	s := &Store{
		connector:   connector{clock: clock.New()},
		root:        strings.TrimSuffix(root, "/"),
		workers:     workerpool.New(idleWorkers),
		alarm:       alarm.New(),
		holds:       make(map[holdID]*hold),
		watches:     make(map[string]*watchedNode),
		crowds:      make(map[string]*crowd),
		withoutData: make(map[string]struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if err := s.connect(servers, &o, s.ctx.Done(), s.handle); err != nil {
		return nil, err
	}
	s.work.Go(func() { s.alarm.Run(s.ctx, s.clean) })
	return s, nil
}

// The limits of Options.Timeout. With less than minTimeout the client has given up before a server
// can have answered.
const (
	minTimeout = 100 * time.Millisecond
	maxTimeout = 24 * time.Hour
)

// isPath reports whether ZooKeeper accepts p.
func isPath(p string) bool {
	return path.Clean(p) == p && !strings.ContainsFunc(p, func(r rune) bool { return r != '/' && r != '%' && mustEscape(r) })
}

// Format prints only the type: a store contains owners of locks and a password.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zklock.Store") }

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:            "zookeeper",
		Fencing:          driver.FencingStrong,
		TokenStep:        tokenstep.Size,
		Fair:             s.opts.Order == Fair,
		Shared:           s.offersModes(),
		Limits:           s.offersModes(),
		Queues:           s.opts.Order == Fair,
		WatchesExpiry:    true,
		SessionBound:     true,
		ReportsLoss:      true,
		Reaction:         time.Millisecond,
		MinTTL:           10 * time.Millisecond,
		SurvivesRestart:  true,
		SurvivesFailover: true,
	}
}

// offersModes reports whether the store offers more than exclusive locks.
func (s *Store) offersModes() bool { return s.opts.Order == Fair && !s.opts.ExclusiveOnly }

// closeLimit is how long Close waits for requests under way, and then for the client of ZooKeeper.
const closeLimit = time.Second

// Close ends the session and with it all locks, and waits for the background work. If no
// server can be reached, the session ends by its timeout.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.endHolds()
		s.cancel(driver.ErrClosed)
		// If a request is sent while the client closes, it may block the client for good.
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		_, _ = detach.Call(ctx, detach.Go, func() struct{} { s.work.Wait(); return struct{}{} })
		cancel()
		s.disconnect()
		s.work.Wait()
		s.workers.Close()
	})
	return nil
}

// endHolds lets the store grant nothing more, and tells all holders that they are about to lose their
// locks.
func (s *Store) endHolds() {
	var reports sync.WaitGroup
	s.withLock(func() {
		s.closed = true
		for _, h := range s.holds {
			if h.held && h.lost != nil {
				reports.Go(h.lost)
				h.lost = nil
			}
		}
	})
	reports.Wait()
}

// detached runs f with a session and explains its errors. If ctx ends first, detached returns,
// and f goes on until the server has answered its requests, so that no answer is lost: the
// next operation of the same owner finds what f has done.
func detached[T any](ctx context.Context, s *Store, what string, f func(ctx context.Context) (T, error)) (result T, err error) {
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return result, driver.ErrClosed
	}
	s.work.Add(1)
	s.mu.Unlock()
	type outcome struct {
		result T
		err    error
	}
	done, err := detach.Call(ctx, s.workers.Go, func() (o outcome) {
		defer s.work.Done()
		if o.err = s.waitConnected(ctx); o.err == nil {
			o.err = s.prepare(ctx)
		}
		if o.err == nil {
			o.result, o.err = f(ctx)
		}
		return o
	})
	if err != nil {
		return result, s.contextError(ctx)
	}
	return done.result, explain(what, done.err)
}

// read is detached for reads, which are repeated if the connection breaks.
func read[T any](ctx context.Context, s *Store, what string, f func() (T, error)) (T, error) {
	return detached(ctx, s, what, func(ctx context.Context) (result T, err error) {
		err = s.retry(ctx, func() (err error) { result, err = f(); return err })
		return result, err
	})
}

// run is detached for functions without a result.
func (s *Store) run(ctx context.Context, what string, f func(ctx context.Context) error) error {
	_, err := detached(ctx, s, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// backgroundLocked runs f with a context that ends when the store is closed. After that it
// does nothing, because everything ends with the session.
func (s *Store) backgroundLocked(f func(ctx context.Context)) {
	if !s.closed {
		s.work.Go(func() { f(s.ctx) })
	}
}

func (s *Store) containerPath(name string) string { return s.root + "/" + escape(name, s.root == "") }

func (s *Store) rootPath() string { return cmp.Or(s.root, "/") }

func (s *Store) withLock(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
