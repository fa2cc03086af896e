package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/workerpool"
	"github.com/go-zookeeper/zk"
)

// Order says who gets a lock that several want.
type Order int

// The orders.
const (
	// Fair lets everybody queue, as Curator does.
	Fair Order = iota
	// Unfair lets everybody try at once. It offers no fair locks.
	Unfair
)

// DefaultTimeout is the session's timeout unless Options.Timeout says otherwise. It
// is also the default TTL of a lock.
const DefaultTimeout = 30 * time.Second

// Options of a store. The zero value is fine.
type Options struct {
	// Root is the path that the locks are below; default "/". Where it does not
	// exist, or not any more, the store creates it, as Curator does.
	Root string
	// RequireRoot makes a missing root an error instead.
	RequireRoot bool

	Order Order

	// Timeout is that of the session, which the server may change: by default it
	// allows 4 to 40 seconds. It is how long the locks of a process last that was
	// killed or cut off.
	Timeout time.Duration

	// User and Password are for digest authentication. ZooKeeper does not check
	// them by themselves: wrong ones show when a node's ACL refuses them.
	User, Password string

	// ACL of the nodes that are created; default is everything for everybody, as
	// with Curator. With a user, zk.AuthACL(zk.PermAll) is everything for that one.
	ACL []zk.ACL

	// TLS of the connections; nil is none.
	TLS *tls.Config
}

// Store keeps locks in ZooKeeper. Create one with [New] or [Open].
type Store struct {
	session
	root  string // without a slash at its end: empty for "/"
	order Order
	acl   []zk.ACL

	parents parents
	workers *workerpool.Pool
	clock   *clock.Clock
	ctx     context.Context // done when the store is closed
	cancel  context.CancelCauseFunc
	once    sync.Once

	mu         sync.Mutex
	closed     bool
	live       int64          // the session; zero if there is none
	connection uint64         // counts those that had a session
	vouched    vouched        // when the leader last knew it
	work       sync.WaitGroup // whoever begins does so with mu
	claims     map[claimKey]*claim
	watches    map[string]*watchedNode // by path
}

// idleWorkers is how many goroutines stay for the next calls.
const idleWorkers = 64

// New returns a store on the servers host:port, with a session of its own, which it
// opens in the background: no call is needed for it, and none is made here. A nil
// opts is fine.
func New(servers []string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ACL == nil {
		o.ACL = zk.WorldACL(zk.PermAll)
	}
	root := "/" + strings.Trim(o.Root, "/")
	switch {
	case len(servers) == 0:
		return nil, errors.New("no servers")
	case o.Order != Fair && o.Order != Unfair:
		return nil, fmt.Errorf("%w: order %d", driver.ErrUnsupported, int(o.Order))
	case o.Timeout < time.Millisecond || o.Timeout > maxTimeout:
		return nil, fmt.Errorf("a session's timeout of %v is not between a millisecond and %v", o.Timeout, maxTimeout)
	case !isPath(root):
		return nil, fmt.Errorf("the root %q is no path that ZooKeeper takes", root)
	}
	s := &Store{
		root:    strings.TrimSuffix(root, "/"),
		order:   o.Order,
		acl:     o.ACL,
		workers: workerpool.New(idleWorkers),
		clock:   clock.New(),
		claims:  make(map[claimKey]*claim),
		watches: make(map[string]*watchedNode),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.session.init(&o, s.ctx.Done())
	if err := s.connect(servers, o.TLS, s.handle); err != nil {
		return nil, err
	}
	return s, nil
}

// maxTimeout is what ZooKeeper can be asked for.
const maxTimeout = 24 * time.Hour

// isPath refuses what ZooKeeper would.
func isPath(path string) bool {
	if path == "/" {
		return true
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		bad := strings.ContainsFunc(segment, func(r rune) bool { return r != '%' && refused(r) })
		if segment == "" || segment == "." || segment == ".." || bad {
			return false
		}
	}
	return true
}

// Format prints no more than what it is: in it are owners of locks and a password.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "zklock.Store") }

// Traits says what ZooKeeper promises.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:            "zookeeper",
		Fencing:          driver.FencingStrong,
		Fair:             s.order == Fair,
		Queues:           s.order == Fair,
		WatchesExpiry:    true,
		SessionBound:     true,
		ReportsLoss:      true,
		Handover:         time.Millisecond,
		MinTTL:           10 * time.Millisecond,
		SurvivesRestart:  true,
		SurvivesFailover: true,
	}
}

// Close ends the session, and with it all locks, and waits until nothing is left in
// the background. Where no server can be reached, the session ends by its timeout.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		for _, c := range s.claims {
			c.stopTimerLocked()
		}
		s.mu.Unlock()
		s.cancel(driver.ErrClosed)
		s.hangUp()
		s.work.Wait()
		s.workers.Close()
	})
	return nil
}

// begin lets something run that Close waits for; end says that it is over.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.work.Add(1)
	return nil
}

// do calls f in the background and returns when it does, or when ctx is done. f goes
// on then, until the server has answered what it was asked, so that no answer is
// lost: what f has done is found by whoever comes next.
func (s *Store) do(ctx context.Context, f func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.begin(); err != nil {
		return err
	}
	done := make(chan error, 1)
	s.workers.Go(func() {
		defer s.work.Done()
		err := s.prepare(ctx)
		if err == nil {
			err = s.connected(ctx)
		}
		if err == nil {
			err = f(ctx)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return s.interrupted(ctx)
	}
}

// later calls f in the background, with a context that ends when the store is closed.
func (s *Store) later(f func(ctx context.Context)) {
	if s.begin() != nil {
		return // everything ends with the session
	}
	go func() {
		defer s.work.Done()
		f(s.ctx)
	}()
}

func (s *Store) parentOf(name string) string { return s.root + "/" + escape(name, s.root == "") }

func (s *Store) rootPath() string {
	if s.root == "" {
		return "/"
	}
	return s.root
}
