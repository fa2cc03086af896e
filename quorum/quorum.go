package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/workerpool"
)

// DefaultMemberTimeout is the limit of one call to one member, whatever the TTL.
const DefaultMemberTimeout = 50 * time.Millisecond

// Options are the choices that have good defaults.
type Options struct {
	// MemberTimeout is how long a member may take to answer one call: a few times the
	// usual time. Zero means DefaultMemberTimeout. The shortest TTL is four times as long.
	MemberTimeout time.Duration

	// Names are the members' names in errors and diagnoses, such as their
	// addresses. Nil means "member 1" and so on; otherwise there is one for each.
	Names []string
}

// Store is a quorum of stores. See [New].
//
// It is a driver.Diagnoser, a driver.Watcher if a majority of its members are Watchers without
// Traits.Queues, a driver.Lister and Finder if a majority are Listers, and a driver.Breaker if a
// majority are Breakers and all are TokenRaisers of one kind. Otherwise these calls return an error that wraps
// driver.ErrUnsupported.
//
// Only the Store that an owner asked knows what the owner has: another Store of the same members can
// renew and release a grant with its Handle, but not by the owner alone.
type Store struct {
	members        []*member
	traits         driver.Traits
	timeout        time.Duration
	majority       int  // any two majorities have a member in common
	agreesOnTokens bool // all members are TokenRaisers of one kind
	forecast       forecast

	identified atomic.Bool // a first attempt has waited for the identities of all members

	mu            sync.Mutex
	closed        bool
	servers       map[string]*member // by identity
	sameServerErr error              // two members are one server
	acquisitions  map[driver.Owner]*acquisition
	sweepAt       int // the number of acquisitions that starts a search for expired ones
	watches       map[driver.Owner]*watch

	closing context.Context    // ends when Close begins
	close   context.CancelFunc // ends closing
	work    sync.WaitGroup     // calls, and their background work
	workers *workerpool.Pool   // calls the members
}

const (
	idleWorkers = 64                   // goroutines that stay for the next calls
	maxMembers  = 63                   // that fit into a set
	minTTL      = 8 * time.Millisecond // leaves time for the lock after the drift has been taken off
	// polledReaction is the Reaction of a member that cannot be watched: half of the longest time
	// between two polls of a waiter.
	polledReaction = 500 * time.Millisecond
)

// New returns a quorum of members. It makes no calls, and Close does not close the
// members: they stay the caller's. A nil opts is fine.
//
// There must be an odd number of members, at least three, that keep their data
// independently of each other. New rejects the same store twice, and the first use rejects
// two stores that reach the same server, if they can tell (driver.Identifier).
func New(members []driver.Store, opts *Options) (*Store, error) {
	opts = cmp.Or(opts, &Options{})
	if err := check(members, opts); err != nil {
		return nil, err
	}
	s := &Store{
		timeout:      cmp.Or(max(opts.MemberTimeout, 0), DefaultMemberTimeout),
		majority:     len(members)/2 + 1,
		servers:      make(map[string]*member),
		acquisitions: make(map[driver.Owner]*acquisition),
		sweepAt:      minSweep,
		watches:      make(map[driver.Owner]*watch),
		workers:      workerpool.New(idleWorkers),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	for i, store := range members {
		m := &member{store: store, index: i, name: fmt.Sprintf("member %d", i+1), timeout: s.timeout, start: time.Now()}
		if !store.Traits().Queues { // see watch.subscribe
			m.watcher, _ = store.(driver.Watcher)
		}
		m.raiser, _ = store.(driver.TokenRaiser)
		m.identifier, _ = store.(driver.Identifier)
		if opts.Names != nil {
			m.name = opts.Names[i]
		}
		s.members = append(s.members, m)
	}
	s.identified.Store(!slices.ContainsFunc(s.members, func(m *member) bool { return m.identifier != nil }))
	s.traits, s.agreesOnTokens = traits(s.members, s.timeout)
	if shortest, longest := s.traits.MinTTL, s.traits.MaxTTL; shortest > longest || s.timeout > longest/4 {
		return nil, fmt.Errorf("no TTL is allowed: it must be at most %v, and at least %v and four times the MemberTimeout of %v", longest, shortest, s.timeout)
	}
	return s, nil
}

// check rejects what cannot be a quorum.
func check(members []driver.Store, opts *Options) error {
	switch n := len(members); {
	case n < 3:
		return fmt.Errorf("%d members tolerate no failure: use a store by itself, or three", n)
	case n%2 == 0:
		return fmt.Errorf("%d members tolerate no more failures than %d members do, and split their votes more often: leave one out, or add one", n, n-1)
	case n > maxMembers:
		return fmt.Errorf("too many members: %d (want at most %d)", n, maxMembers)
	case opts.Names != nil && len(opts.Names) != n:
		return fmt.Errorf("%d names for %d members", len(opts.Names), n)
	}
	for i, m := range members {
		if m == nil {
			return fmt.Errorf("member %d is nil", i+1)
		}
		for j, other := range members[:i] {
			if reflect.ValueOf(m).Comparable() && m == other {
				return fmt.Errorf("members %d and %d are the same store, whose vote would count twice", j+1, i+1)
			}
		}
	}
	return nil
}

// traits returns what the members allow together: mostly what the weakest of them does.
func traits(members []*member, timeout time.Duration) (t driver.Traits, agreesOnTokens bool) {
	t = members[0].store.Traits()
	agreesOnTokens = true
	var reactions []time.Duration
	for _, m := range members {
		of := m.store.Traits()
		agreesOnTokens = agreesOnTokens && m.raiser != nil && of.Store == t.Store && of.TokenStep == t.TokenStep
		if of.Store != t.Store {
			t.Store = "stores"
		}
		if m.watcher == nil {
			of.Reaction = polledReaction
		}
		reactions = append(reactions, of.Reaction)
		t.Fencing = min(t.Fencing, of.Fencing)
		t.SessionBound = t.SessionBound || of.SessionBound
		t.MinTTL = max(t.MinTTL, of.MinTTL)
		t.MaxTTL = min(t.LongestTTL(), of.LongestTTL())
		t.Granularity = max(t.Granularity, of.Granularity)
		t.OneMachine = t.OneMachine || of.OneMachine // each machine may have a majority with its own member
		t.SurvivesRestart = t.SurvivesRestart && of.SurvivesRestart
		t.SurvivesFailover = t.SurvivesFailover && of.SurvivesFailover
	}
	if !agreesOnTokens {
		t.Fencing, t.TokenStep = driver.FencingNone, 1
	}
	slices.Sort(reactions)                 // unknown ones, which are zero, come first
	t.Reaction = reactions[len(members)/2] // until a majority is released
	// A vote takes up to two timeouts, or three before the members are identified, and must leave
	// some time.
	t.MinTTL = max(t.MinTTL, 4*timeout, minTTL)
	t.Store = fmt.Sprintf("quorum of %d %s", len(members), t.Store)
	t.SplitVotes = true
	// These are promises of single servers.
	t.Fair, t.Queues, t.WatchesExpiry, t.ReportsLoss, t.Local = false, false, false, false, false
	t.Shared, t.Limits = false, false
	return t, agreesOnTokens
}

// Traits implements driver.Store. With SessionBound, locks end with the sessions of the members,
// which Close does not close.
func (s *Store) Traits() driver.Traits { return s.traits }

// begin makes Close wait for a call and what it starts, until work.Done is called.
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

// Close implements driver.Store. It waits for calls that are under way. Then it repeats for the last
// time, for a second at most, the releases that members did not answer. The error says for how many
// locks contenders have to wait until they expire. The members stay open.
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
	s.close()
	s.work.Wait()
	if closed {
		return nil
	}
	err := s.flushReleases()
	s.workers.Close()
	return err
}

var errNoMajority = errors.New("no majority agrees")

// noMajority returns the error of a call without a majority. errs are the members' errors. It is
// an error of several calls, so that [driver.Unchanged] takes no error of a member for proof.
func (s *Store) noMajority(errs []error) error {
	var why error
	inMode := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		if mode, ok := errors.AsType[*driver.ModeError](err); ok {
			if inMode++; inMode >= s.majority {
				return mode
			}
		}
		if isAnswer(err) { // of one member, which must not pass for that of the quorum
			err = errors.New(err.Error())
		}
		err = fmt.Errorf("%s: %w", s.members[i].name, err)
		if why != nil { // errors.Join would take several lines
			err = fmt.Errorf("%w; %w", why, err)
		}
		why = err
	}
	return fmt.Errorf("%w (%d of %d members): %w", errNoMajority, s.majority, len(s.members), cmp.Or(why, driver.ErrUnreachable))
}

// interrupted returns the error of a call whose context ended before a majority had answered.
func interrupted(ctx context.Context) error {
	return fmt.Errorf("%w: no answer of a majority: %w", driver.ErrUnreachable, context.Cause(ctx))
}
