package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/dlock-go/dlock/internal/workerpool"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/internal/master"
	"github.com/redis/go-redis/v9"
)

// DefaultMemberTimeout is the limit of one call to one member, whatever the TTL.
const DefaultMemberTimeout = 50 * time.Millisecond

// Options are the choices that have good defaults.
type Options struct {
	// MemberTimeout is how long a member may take to answer one call: a few times the
	// usual time. Zero means DefaultMemberTimeout. The shortest TTL is four times as long.
	MemberTimeout time.Duration
}

// Store is a Redlock. See [New] and [Open].
//
// Only the Store that an owner asked knows what the owner has: another Store of the same members can
// renew and release a grant with its Handle, but not by the owner alone.
type Store struct {
	members  []*member
	timeout  time.Duration
	majority int             // any two majorities have a member in common
	location driver.Location // of a store that Open made

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
	idleWorkers = 64                    // goroutines that stay for the next calls
	maxMembers  = 63                    // that fit into a set
	minTTL      = 10 * time.Millisecond // of a member; it leaves time for the lock after the drift has been taken off
)

// New returns a Redlock over clients of independent servers, which stay the caller's. It makes no calls. A
// nil opts is fine. There must be an odd number of servers, at least three. The first use rejects
// two clients that reach the same server. The clients should have the option ContextTimeoutEnabled.
func New(clients []*redis.Client, opts *Options) (*Store, error) {
	names := make([]string, len(clients))
	for i, client := range clients {
		switch first := slices.Index(clients, client); {
		case client == nil:
			return nil, fmt.Errorf("client %d is nil", i+1)
		case first < i:
			return nil, fmt.Errorf("clients %d and %d are the same, whose vote would count twice", first+1, i+1)
		}
		names[i] = client.Options().Addr
	}
	return build(names, opts, func(i int) (master.Store, error) { return master.New(clients[i]) })
}

// Open returns a Redlock with clients of its own, which Close closes. It makes no calls, and ctx is not
// used. A nil opts is fine; the parameters of the URL take precedence over opts.
//
//	redlock://[user:password@]host:port,host:port,host:port[/db]
//
// The parameter member_timeout=200ms is as in [Options]. User, database and all other parameters hold for
// every server, as in [redislock.Open]. An error about the URL wraps [redislock.ErrURL].
func Open(_ context.Context, rawURL string, opts *Options) (*Store, error) {
	o := *cmp.Or(opts, &Options{})
	u, err := o.parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", redislock.ErrURL, err)
	}
	server := url.URL{Scheme: "redis", Path: "/" + u.Path, RawQuery: u.Rest().Encode()}
	if u.Rest().Get("tls") == "true" {
		server.Scheme = "rediss"
	}
	if u.User+u.Password != "" {
		server.User = url.UserPassword(u.User, u.Password)
	}
	s, err := build(u.Hosts, &o, func(i int) (master.Store, error) {
		at := server
		at.Host = u.Hosts[i]
		return master.Open(at.String())
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", redislock.ErrURL, err)
	}
	db, _ := strconv.Atoi(cmp.Or(u.Rest().Get("db"), u.Path)) // the servers have checked it
	s.location = u.Location("redlock", strings.TrimPrefix(strconv.Itoa(db), "0"))
	return s, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

// parse parses the URL, and takes the parameters that are not those of the members.
func (o *Options) parse(rawURL string) (*storeurl.URL, error) {
	u, err := storeurl.Parse(rawURL, storeurl.Scheme{Name: "redlock", Port: "6379"})
	if err != nil {
		return nil, err
	}
	if protocol := u.Take("protocol"); protocol != "" && protocol != redislock.Plain.String() {
		return nil, fmt.Errorf("redlock:// supports the plain protocol only, not %s", protocol)
	}
	if text := u.Take("member_timeout"); text != "" {
		if o.MemberTimeout, err = time.ParseDuration(text); err != nil || o.MemberTimeout <= 0 {
			return nil, fmt.Errorf("member_timeout=%s is not a duration such as 200ms", text)
		}
	}
	return u, nil
}

// build returns a Redlock of members with those names, which open makes.
func build(names []string, opts *Options, open func(i int) (master.Store, error)) (*Store, error) {
	timeout := cmp.Or(max(cmp.Or(opts, &Options{}).MemberTimeout, 0), DefaultMemberTimeout)
	switch n := len(names); {
	case n < 3:
		return nil, fmt.Errorf("%d servers tolerate no failure: use a server by itself, or three", n)
	case n%2 == 0:
		return nil, fmt.Errorf("%d servers tolerate no more failures than %d servers do, and split their votes more often: leave one out, or add one", n, n-1)
	case n > maxMembers:
		return nil, fmt.Errorf("too many servers: %d (want at most %d)", n, maxMembers)
	case timeout > driver.MaxTTL/4:
		return nil, fmt.Errorf("no TTL is allowed: it must be at most %v, and at least four times the MemberTimeout of %v", driver.MaxTTL, timeout)
	}
	s := &Store{
		timeout:      timeout,
		majority:     len(names)/2 + 1,
		servers:      make(map[string]*member),
		acquisitions: make(map[driver.Owner]*acquisition),
		sweepAt:      minSweep,
		watches:      make(map[driver.Owner]*watch),
		workers:      workerpool.New(idleWorkers),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	for i, name := range names {
		store, err := open(i)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.members = append(s.members, &member{s: s, store: store, index: i, name: name, start: time.Now()})
	}
	return s, nil
}

// Traits implements driver.Store.
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Store:           fmt.Sprintf("redlock of %d", len(s.members)),
		Fencing:         driver.FencingClockBound,
		TokenStep:       master.TokenStep,
		Reaction:        300 * time.Microsecond,
		MinTTL:          max(minTTL, 4*s.timeout), // a vote takes up to three timeouts, and must leave some time
		Granularity:     time.Millisecond,
		SurvivesRestart: true,
	}
}

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
// locks contenders have to wait until they expire.
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
	errs := make([]error, len(s.members))
	var all sync.WaitGroup
	for i, m := range s.members {
		all.Go(func() { errs[i] = m.store.Close() })
	}
	all.Wait()
	return errors.Join(err, errors.Join(errs...))
}

var errNoMajority = errors.New("no majority agrees")

// noMajority returns the error of a call without a majority. errs are the members' errors. It is
// an error of several calls, so that [driver.Unchanged] takes no error of a member for proof.
func (s *Store) noMajority(errs []error) error {
	var why error
	for i, err := range errs {
		if err == nil {
			continue
		}
		if isAnswer(err) { // of one member, which must not pass for that of all
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
