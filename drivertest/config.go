package drivertest

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Config says how to reach the store that is to be checked. Only Open is needed.
type Config struct {
	// Open returns a new connection to the state that all connections share,
	// as another program on another machine would open it. It is called often
	// and concurrently. Closing the store must end everything that Open
	// started: goroutines that outlive it are reported.
	Open func(ctx context.Context) (driver.Store, error)

	// TTL is the shortest lease that is worth testing with the store. All
	// waiting is derived from it, and it should be well above the time that a
	// call takes on a busy machine. Default: 300 ms, or Traits.MinTTL if that
	// is longer.
	TTL time.Duration

	// Session is how long the locks of a process that was killed may last, where
	// that is not their TTL but, with Traits.SessionBound, the time in which the
	// store notices that its session has ended. Default: TTL.
	Session time.Duration

	// Worker returns a command that starts the test binary again, in such a
	// way that it calls [Work]. Without it nothing is checked between
	// processes, which is right only for a store that lives in one process.
	Worker func() *exec.Cmd

	// Leftovers lists what is in the store and should not be when no client uses
	// it any more: held locks, places in queues, subscriptions. It leaves out what
	// the store may keep: the last token of a name, expired entries that the
	// janitor has not removed yet. The kit polls it until it is empty. Leave it
	// nil if other programs use the store as well.
	Leftovers func(ctx context.Context) ([]string, error)

	// Skewed is Open for a machine whose wall clock is wrong by that much.
	// Leave it nil if the store takes no time from its clients.
	Skewed func(ctx context.Context, by time.Duration) (driver.Store, error)

	// Delayed is Open over a network that can be slow. From hold on, what is sent
	// on the connections that are open then arrives only when deliver is called,
	// also if the sender has hung up meanwhile; connections that are opened later
	// are not delayed. deliver returns when what was held has been carried out.
	// Leave it nil for a store that has no network.
	Delayed func(ctx context.Context) (store driver.Store, hold func() (deliver func()), err error)

	// Parallel is how many clauses are checked at the same time. Most of a
	// check is waiting for a TTL to pass, so that more is faster until the
	// store is too busy to answer in a small part of TTL. Default: 8.
	Parallel int
}

// setup is what the kit derives from a configuration and the traits of the store.
type setup struct {
	Config
	impatient bool // for stores that are known to be broken: what is late counts as missing

	traits  driver.Traits
	store   driver.Store  // closed: it only says which extensions there are
	running chan struct{} // one element for each clause that is being checked

	runID   string        // random, part of every name
	prefix  string        // of every name
	ttl     time.Duration // for locks that are to expire
	long    time.Duration // for locks that are not to expire while a clause runs
	slack   time.Duration // how late something may be on a busy machine
	onTime  time.Duration // within which what must happen does, unless the machine is too slow to tell
	grace   time.Duration // after onTime: what has not happened by then does not happen
	poll    time.Duration // between two polls
	limit   time.Duration // after which a clause has failed
	cleanup time.Duration // for which a clause may release and close what it used
}

const (
	defaultTTL      = 300 * time.Millisecond
	defaultParallel = 8
)

func (cfg Config) resolve(ctx context.Context, run string) (*setup, error) {
	if cfg.Open == nil {
		return nil, fmt.Errorf("drivertest: Config.Open is nil")
	}
	store, err := cfg.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("drivertest: Config.Open: %w", err)
	}
	traits := store.Traits()
	if err := store.Close(); err != nil {
		return nil, fmt.Errorf("drivertest: Close of an unused store: %w", err)
	}
	cfg.Parallel = cmp.Or(max(0, cfg.Parallel), defaultParallel)
	s := &setup{Config: cfg, traits: traits, store: store, running: make(chan struct{}, cfg.Parallel),
		runID: run, prefix: "drivertest-" + run + "/"}
	s.setTTL(max(cmp.Or(max(0, cfg.TTL), defaultTTL), traits.MinTTL))
	return s, nil
}

// setTTL derives all waiting from the short TTL.
func (s *setup) setTTL(ttl time.Duration) {
	s.ttl = ttl
	s.long = min(20*ttl+time.Minute, s.traits.LongestTTL())
	s.slack = time.Second + ttl/2 + s.traits.Granularity
	s.onTime = ttl + max(ttl, s.Session) + s.slack
	if !offers[driver.Watcher](s) {
		s.onTime += 2 * time.Second // clients poll about once a second
	}
	if s.grace = 10 * time.Second; s.impatient {
		s.grace = 0
	}
	s.poll = min(max(ttl/60, 2*time.Millisecond), 50*time.Millisecond)
	s.limit = 60 * (time.Second + ttl)
	s.cleanup = s.slack + 10*time.Second
}
