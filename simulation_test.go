package dlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

var (
	seeds     = flag.Int("seeds", defaultSeeds, "number of simulations")
	firstSeed = flag.Uint64("seed", 1, "the first seed; with -seeds 1 the only one")
)

// TestSimulation runs clients over a bad network in virtual time. It checks that two
// contexts of one name are never alive at once, that tokens rise, that no caller waits
// for ever and that nothing is left behind. A seed decides the faults, not the scheduler:
// -count may be needed to reproduce a failure.
func TestSimulation(t *testing.T) {
	var seen tally
	t.Cleanup(func() {
		t.Logf("%d acquired, %d handed over, %d lost, %d refused, %d unreachable",
			seen.acquired.Load(), seen.handedOver.Load(), seen.lost.Load(), seen.refused.Load(), seen.unreachable.Load())
		if *seeds >= 100 && (seen.acquired.Load() == 0 || seen.handedOver.Load() == 0 || seen.lost.Load() == 0 || seen.refused.Load() == 0 || seen.unreachable.Load() == 0) {
			t.Error("the simulation does not reach every outcome")
		}
	})
	shards := runtime.GOMAXPROCS(0)
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < *seeds; i += shards {
				seed := *firstSeed + uint64(i)
				synctest.Test(t, func(t *testing.T) {
					for _, violation := range simulate(t, seed, nil, &seen) {
						t.Errorf("seed %d: %s", seed, violation)
					}
				})
				if t.Failed() {
					t.Fatalf("to reproduce: go test -run TestSimulation -seed %d -seeds 1", seed)
				}
			}
		})
	}
}

// The simulation finds stores that are broken on purpose.
func TestSimulationFindsBrokenStores(t *testing.T) {
	for _, broken := range []struct {
		name    string
		spoil   func(full) full
		finding string
	}{
		{"the lock expires at half its TTL", func(s full) full { return halfTTL{s} }, "two trust"},
		{"trust is counted from the reply", func(s full) full { return trustFromReply{s} }, "two trust"},
		{"trust is counted from the reply to a renewal", func(s full) full { return renewedFromReply{s} }, "two trust"},
		{"a batch ignores the holders", func(s full) full { return batchTakes{s} }, "two trust"},
		{"the next grant is inside the span", func(s full) full { return overlaps{s} }, "token"},
		{"release ignores the owner", func(s full) full { return releasesAnyOwner{s} }, "two trust"},
		{"tokens start again", func(s full) full { return tokenResets{s} }, "token"},
		{"the lock never expires", func(s full) full { return neverExpires{s} }, "for ever"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			const tries = 300
			for seed := range uint64(tries) {
				var violations []string
				synctest.Test(t, func(t *testing.T) { violations = simulate(t, seed, broken.spoil, new(tally)) })
				for _, v := range violations {
					if strings.Contains(v, broken.finding) {
						return
					}
				}
			}
			t.Errorf("%d seeds did not find it", tries)
		})
	}
}

type halfTTL struct{ full }

func (s halfTTL) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL /= 2
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

func (s halfTTL) Renew(ctx context.Context, grants []driver.Grant) []error {
	return nil // without renewing
}

type trustFromReply struct{ full }

func (s trustFromReply) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL += 1500 * time.Millisecond // like a client that counts from a slow reply
	return grant, err
}

type renewedFromReply struct{ full }

func (s renewedFromReply) Renew(ctx context.Context, grants []driver.Grant) []error {
	earlier := slices.Clone(grants)
	for i := range earlier {
		earlier[i].TTL /= 4 // what is left when a slow reply arrives
	}
	return s.full.Renew(ctx, earlier)
}

type batchTakes struct{ full }

func (s batchTakes) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	for info := range s.List(ctx, "") {
		_ = s.Break(ctx, info.Name, info.Token)
	}
	return s.full.AcquireAll(ctx, reqs)
}

type releasesAnyOwner struct{ full }

func (s releasesAnyOwner) Release(ctx context.Context, grant driver.Grant) error {
	for info := range s.List(ctx, "") {
		if info.Name == grant.Name {
			return s.Break(ctx, info.Name, info.Token)
		}
	}
	return s.full.Release(ctx, grant)
}

type overlaps struct{ full }

func (s overlaps) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	span := req.Span
	req.Span = 0
	grant, err := s.full.Acquire(ctx, req)
	grant.Span = span
	return grant, err
}

type tokenResets struct{ full }

func (s tokenResets) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.full.Acquire(ctx, req)
	grant.Token = 1 + grant.Token%3
	return grant, err
}

func (s tokenResets) Release(ctx context.Context, grant driver.Grant) error {
	grant.Token = 0
	return s.full.Release(ctx, grant)
}

type neverExpires struct{ full }

func (s neverExpires) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL = 24 * time.Hour
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

func (s neverExpires) Renew(context.Context, []driver.Grant) []error { return nil }

// tally counts the outcomes of all runs.
type tally struct{ acquired, handedOver, lost, refused, unreachable atomic.Int64 }

// simulation is one run.
type simulation struct {
	seen  *tally
	store full
	mu    sync.Mutex
	// trusted are the leases of each name that were returned and not unlocked.
	trusted    map[string]map[*dlock.Lease]bool
	last       map[string]uint64
	granted    map[uint64]bool // the tokens with which the store granted locks
	violations []string
}

func (s *simulation) violate(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// trust records a lease that Lock has returned, and checks it.
func (s *simulation) trust(lease *dlock.Lease) {
	s.seen.acquired.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	name := lease.Name()
	if lease.Context().Err() != nil {
		return // lost at once: its holder does not trust it
	}
	for other := range s.trusted[name] {
		select {
		case <-other.Context().Done(): // not Err, which checks the clock itself
		default:
			s.violations = append(s.violations, fmt.Sprintf("two trust %q, tokens %d and %d", name, other.Token(), lease.Token()))
		}
	}
	if lease.Token() <= s.last[name] {
		s.violations = append(s.violations, fmt.Sprintf("token %d of %q came after %d", lease.Token(), name, s.last[name]))
	}
	s.last[name] = lease.Token()
	if !s.granted[lease.Token()] {
		s.seen.handedOver.Add(1)
	}
	if s.trusted[name] == nil {
		s.trusted[name] = map[*dlock.Lease]bool{}
	}
	s.trusted[name][lease] = true
}

func (s *simulation) note(grant driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted[grant.Token] = true
}

func (s *simulation) forget(lease *dlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trusted[lease.Name()], lease)
}

const (
	simTTL     = 2 * time.Second
	simTrouble = 15 * time.Second // how long the network is bad
	simPatient = time.Hour        // a longer wait counts as for ever
	simLatest  = 15 * time.Second // longer than any message takes
)

// simulate runs one seed and returns what went wrong.
func simulate(t *testing.T, seed uint64, spoil func(full) full, seen *tally) []string {
	random := rand.New(rand.NewPCG(seed, 7))
	var store full = memlock.New()
	if spoil != nil {
		store = spoil(store)
	}
	s := &simulation{seen: seen, store: store, trusted: map[string]map[*dlock.Lease]bool{}, last: map[string]uint64{}, granted: map[uint64]bool{}}
	ctx, cancel := context.WithTimeoutCause(t.Context(), simPatient, errors.New("for ever"))
	defer cancel()

	var networks []*network
	var clients []*dlock.Client
	var wg sync.WaitGroup
	bad := rates{
		dropRequest: random.Float64() * 0.2,
		dropReply:   random.Float64() * 0.2,
		repeat:      random.Float64() * 0.2,
		slow:        random.Float64() * 0.2,
	}
	for i := range 2 + random.IntN(2) {
		n := &network{inner: store, granted: s.note, rates: bad, random: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		c := dlock.New(n, &dlock.Options{TTL: simTTL, RequestTimeout: 700 * time.Millisecond})
		networks, clients = append(networks, n), append(clients, c)
		wg.Go(func() { trouble(n, rand.New(rand.NewPCG(seed, uint64(200+i)))) })
		for j := range 1 + random.IntN(3) {
			wg.Go(func() { s.use(ctx, c, rand.New(rand.NewPCG(seed, uint64(1000+10*i+j)))) })
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		s.violate("a caller waited %v", context.Cause(ctx))
	}
	// Messages under way arrive, and locks expire unless they are renewed.
	time.Sleep(simLatest + 2*simTTL)
	for info := range store.List(context.Background(), "") {
		s.violate("left behind: %q, %d waiters", info.Name, info.Waiters)
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			s.violate("Close: %v", err)
		}
	}
	for _, n := range networks {
		n.late.Wait()
	}
	return s.violations
}

// trouble cuts the network at random, and heals it at the end.
func trouble(n *network, random *rand.Rand) {
	end := time.Now().Add(simTrouble)
	for time.Now().Before(end) {
		time.Sleep(time.Duration(random.Int64N(int64(3 * simTTL))))
		n.setCut(true)
		time.Sleep(time.Duration(random.Int64N(int64(2 * simTTL))))
		n.setCut(false)
	}
	n.mu.Lock()
	n.rates = rates{}
	n.mu.Unlock()
}

// use is one goroutine of a program that locks.
func (s *simulation) use(ctx context.Context, c *dlock.Client, random *rand.Rand) {
	names := []string{"a", "b"}
	for range 10 {
		var opts []dlock.Option
		if random.IntN(4) == 0 {
			opts = append(opts, dlock.WithFixedTTL(simTTL/2))
		}
		if random.IntN(4) == 0 {
			opts = append(opts, dlock.WithFair())
		}
		if random.IntN(3) == 0 {
			opts = append(opts, dlock.WithWait(time.Duration(random.Int64N(int64(2*simTTL)))))
		}
		waiting, stop := ctx, context.CancelFunc(func() {})
		if random.IntN(3) == 0 {
			waiting, stop = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(2*simTTL))))
		}
		hold := time.Duration(random.Int64N(int64(simTTL)))
		switch random.IntN(4) {
		case 0, 1:
			hold /= 1000 // short enough for a hand-over
		case 2:
			hold *= 3 // long enough to end after a renewal
		}
		if random.IntN(5) == 0 {
			s.holdAll(waiting, c, names, hold, opts)
		} else {
			s.hold(waiting, c, names[random.IntN(len(names))], hold, opts)
		}
		stop()
	}
}

func (s *simulation) hold(ctx context.Context, c *dlock.Client, name string, hold time.Duration, opts []dlock.Option) {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		s.checkError(err)
		return
	}
	s.trust(lease)
	select {
	case <-time.After(hold):
	case <-lease.Context().Done():
	}
	s.forget(lease)
	s.checkError(lease.Unlock(ctx))
}

func (s *simulation) holdAll(ctx context.Context, c *dlock.Client, names []string, hold time.Duration, opts []dlock.Option) {
	leases, err := c.LockAll(ctx, names, opts...)
	if err != nil {
		s.checkError(err)
		return
	}
	// Each name is trusted through a lease of its own: a re-entry.
	var each []*dlock.Lease
	for _, name := range names {
		lease, err := c.Lock(leases.Context(), name)
		if err != nil {
			s.checkError(err)
			continue
		}
		s.trust(lease)
		each = append(each, lease)
	}
	select {
	case <-time.After(hold):
	case <-leases.Context().Done():
	}
	for _, lease := range each {
		s.forget(lease)
		s.checkError(lease.Unlock(ctx))
	}
	s.checkError(leases.Unlock(ctx))
}

// checkError reports errors that a bad network does not explain.
func (s *simulation) checkError(err error) {
	switch {
	case errors.Is(err, dlock.ErrNotHeld):
		s.seen.lost.Add(1)
	case errors.Is(err, dlock.ErrHeld):
		s.seen.refused.Add(1)
	case errors.Is(err, dlock.ErrUnreachable):
		s.seen.unreachable.Add(1)
	}
	for _, expected := range []error{nil, dlock.ErrHeld, dlock.ErrNotHeld, dlock.ErrLost, dlock.ErrUnreachable, context.DeadlineExceeded} {
		if errors.Is(err, expected) {
			return
		}
	}
	s.violate("unexpected error: %v", err)
}
