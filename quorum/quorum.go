package quorum

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/workerpool"
)

// DefaultMemberTimeout is the limit of one call to one member. It does not depend
// on the TTL: what is too slow for a short lock is dead for a long one as well.
const DefaultMemberTimeout = 50 * time.Millisecond

// Options are the choices that have good defaults.
type Options struct {
	// MemberTimeout is how long a member may take to answer one call. Zero
	// means DefaultMemberTimeout. It should be some times what an answer
	// usually takes. The shortest TTL is four times as long.
	MemberTimeout time.Duration

	// Names are what the members are called in errors and diagnoses, such as
	// their addresses. Nil means "member 1" and so on; otherwise there is one
	// for each.
	Names []string
}

// Store is a quorum of stores. See [New].
//
// It is a driver.Watcher, Lister, Finder and Breaker, as far as a majority of its
// members is: otherwise these calls return an error that wraps
// driver.ErrUnsupported. It is a driver.Diagnoser as well.
//
// What an owner has is known to the Store that it asked. Through another one its
// grants can be renewed and released as they came, with their Handle, but not by
// the owner alone.
type Store struct {
	members []*member
	traits  driver.Traits
	timeout time.Duration
	rules   rules
	raises  bool // all members can be given a token
	known   forecast

	settled atomic.Bool // all members that answer have said who they are

	mu      sync.Mutex
	closed  bool
	servers map[string]*member // who said so of themselves
	same    error              // two members are one server
	claims  map[driver.Owner]*claim
	sweepAt int // the number of claims that makes looking for useless ones worth it
	watches map[driver.Owner]*watch

	closing chan struct{}    // closed when Close begins
	work    sync.WaitGroup   // calls, and what they leave behind in the background
	workers *workerpool.Pool // who calls the members
}

// maxIdle is how many goroutines wait for the next call.
const maxIdle = 64

// maxMembers is how many fit into a set. Each of them would be asked every time.
const maxMembers = 63

// New returns a quorum of members. It makes no calls, and Close does not close the
// members: they stay the caller's. A nil opts is fine.
//
// There must be an odd number of members, at least three, that keep their data
// independently of each other. The same store twice is refused here, two stores
// that say that they reach the same server (driver.Identifier) at first use.
func New(members []driver.Store, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := check(members, opts); err != nil {
		return nil, err
	}
	s := &Store{
		timeout: opts.MemberTimeout,
		rules:   redlock(len(members)),
		servers: make(map[string]*member),
		claims:  make(map[driver.Owner]*claim),
		sweepAt: sweepFloor,
		watches: make(map[driver.Owner]*watch),
		closing: make(chan struct{}),
		workers: workerpool.New(maxIdle),
	}
	if s.timeout <= 0 {
		s.timeout = DefaultMemberTimeout
	}
	anonymous := true
	for i, store := range members {
		m := newMember(store, i, s.timeout)
		if opts.Names != nil {
			m.name = opts.Names[i]
		}
		if m.identifier != nil {
			anonymous = false
		}
		s.members = append(s.members, m)
	}
	s.settled.Store(anonymous)
	s.traits, s.raises = traits(s.members, s.timeout)
	return s, nil
}

// check refuses what cannot be a quorum.
func check(members []driver.Store, opts *Options) error {
	switch n := len(members); {
	case n < 3:
		return fmt.Errorf("%d members tolerate no failure: use a store by itself, or three", n)
	case n%2 == 0:
		return fmt.Errorf("%d members tolerate no more failures than %d members do, and split their votes more often: leave one out, or add one", n, n-1)
	case n > maxMembers:
		return fmt.Errorf("%d members are more than %d", n, maxMembers)
	case opts.Names != nil && len(opts.Names) != n:
		return fmt.Errorf("%d names for %d members", len(opts.Names), n)
	}
	for i, m := range members {
		if m == nil {
			return fmt.Errorf("member %d is nil", i+1)
		}
		for j, other := range members[:i] {
			if reflect.TypeOf(m).Comparable() && m == other {
				return fmt.Errorf("members %d and %d are the same store, whose vote would count twice", j+1, i+1)
			}
		}
	}
	return nil
}

// traits are what the weakest member allows.
func traits(members []*member, timeout time.Duration) (t driver.Traits, raises bool) {
	t = members[0].store.Traits()
	raises = true
	kind := t.Store
	for _, m := range members {
		of := m.store.Traits()
		raises = raises && m.raiser != nil
		if of.Store != kind {
			kind = "stores"
		}
		t.Fencing = min(t.Fencing, of.Fencing)
		t.SessionBound = t.SessionBound || of.SessionBound
		t.MinTTL = max(t.MinTTL, of.MinTTL)
		t.MaxTTL = min(t.LongestTTL(), of.LongestTTL())
		t.Granularity = max(t.Granularity, of.Granularity)
		t.OneMachine = t.OneMachine && of.OneMachine
		t.SurvivesRestart = t.SurvivesRestart && of.SurvivesRestart
		t.SurvivesFailover = t.SurvivesFailover && of.SurvivesFailover
	}
	if !raises {
		t.Fencing = driver.FencingNone
	}
	// Asking takes up to two timeouts, and something must be left then.
	t.MinTTL = max(t.MinTTL, 4*timeout)
	t.Store = fmt.Sprintf("quorum of %d %s", len(members), kind)
	t.SplitVotes = true
	// Order among those who wait would need a queue that the members agree on,
	// and the others are promises of single servers.
	t.Fair, t.Queues, t.WatchesExpiry, t.ReportsLoss, t.Local = false, false, false, false, false
	return t, raises
}

// Traits implements driver.Store. They are what the weakest member allows:
// SurvivesRestart, for example, is true only if no member forgets.
func (s *Store) Traits() driver.Traits { return s.traits }

// begin counts a call in, so that Close waits for it and for what it starts.
func (s *Store) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.work.Add(1)
	return nil
}

// end counts a call out.
func (s *Store) end() { s.work.Done() }

// Close implements driver.Store. It waits for what is still being given back, which
// takes a few times the MemberTimeout at most, and leaves the members open. Members that did
// not answer when a lock was released are told for the last time. The error says how many
// locks are left at so many of them that others have to wait until they expire.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()
	for _, w := range watches {
		w.stop()
	}
	if closed {
		s.work.Wait()
		return nil
	}
	close(s.closing)
	s.work.Wait()
	err := s.lastCall()
	s.workers.Close()
	return err
}

// errTooFew is what an outcome that nobody knows is made of.
var errTooFew = errors.New("too few members answered")

// unreachable says that no majority answered, and why.
func (s *Store) unreachable(answered int, errs []error) error {
	why := make([]error, 0, len(errs)+1)
	for i, err := range errs {
		switch {
		case err == nil:
		case isAnswer(err): // of one member, which must not look like that of the quorum
			why = append(why, errors.New(s.members[i].name+": "+err.Error()))
		default:
			why = append(why, fmt.Errorf("%s: %w", s.members[i].name, err))
		}
	}
	if len(why) == 0 {
		why = append(why, errTooFew)
	}
	return fmt.Errorf("%d of %d members are needed and %d answered: %w",
		s.rules.majority, len(s.members), answered, errors.Join(why...))
}
