package dlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
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
		t.Logf("%d acquired, %d handed over, %d shared, %d lost, %d refused, %d unreachable",
			seen.acquired.Load(), seen.handedOver.Load(), seen.shared.Load(), seen.lost.Load(), seen.refused.Load(), seen.unreachable.Load())
		if *seeds >= 100 && (seen.acquired.Load() == 0 || seen.handedOver.Load() == 0 || seen.shared.Load() == 0 || seen.lost.Load() == 0 || seen.refused.Load() == 0 || seen.unreachable.Load() == 0) {
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

// tally counts the outcomes of all runs.
type tally struct{ acquired, handedOver, shared, lost, refused, unreachable atomic.Int64 }

// simulation is one run.
type simulation struct {
	seen  *tally
	store full
	mu    sync.Mutex
	// trusted are the leases of each name that were returned and not unlocked.
	trusted    map[string]map[*dlock.Lease]driver.Mode
	last       map[string]uint64 // the largest token of an exclusive lease
	largest    map[string]uint64 // the largest token of all
	seenTokens map[string]map[uint64]bool
	granted    map[uint64]bool // the tokens with which the store granted locks
	violations []string
}

func (s *simulation) violate(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// trust records a lease that Lock has returned, and checks it.
func (s *simulation) trust(lease *dlock.Lease, mode driver.Mode) {
	s.seen.acquired.Add(1)
	if mode.Shared {
		s.seen.shared.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := lease.Name()
	if lease.Context().Err() != nil {
		return // lost at once: its holder does not trust it
	}
	holders := 1
	for other, its := range s.trusted[name] {
		select {
		case <-other.Context().Done(): // not Err, which checks the clock itself
			continue
		default:
		}
		holders++
		if mode.Limit == 0 && !(mode.Shared && its.Shared) {
			s.violations = append(s.violations, fmt.Sprintf("two trust %q, tokens %d (%v) and %d (%v)", name, other.Token(), its, lease.Token(), mode))
		}
	}
	if mode.Limit > 0 && holders > mode.Limit {
		s.violations = append(s.violations, fmt.Sprintf("%d holders trust %q, whose limit is %d", holders, name, mode.Limit))
	}
	s.checkTokenLocked(lease, mode)
	if !s.granted[lease.Token()] {
		s.seen.handedOver.Add(1)
	}
	if s.trusted[name] == nil {
		s.trusted[name] = map[*dlock.Lease]driver.Mode{}
	}
	s.trusted[name][lease] = mode
}

// checkTokenLocked: an exclusive lease has a larger token than every lease that was returned before,
// any other has a larger one than every exclusive lease before, and no two have the same. Leases that
// are returned at the same time may be seen in any order.
func (s *simulation) checkTokenLocked(lease *dlock.Lease, mode driver.Mode) {
	name, token := lease.Name(), lease.Token()
	before := s.last[name]
	if mode == (driver.Mode{}) {
		before = s.largest[name]
	}
	if token <= before || s.seenTokens[name][token] {
		s.violations = append(s.violations, fmt.Sprintf("token %d of %q (%v) came after %d", token, name, mode, before))
	}
	if mode == (driver.Mode{}) {
		s.last[name] = token
	}
	s.largest[name] = max(s.largest[name], token)
	if s.seenTokens[name] == nil {
		s.seenTokens[name] = map[uint64]bool{}
	}
	s.seenTokens[name][token] = true
}

// downgraded records that a lease may be shared from now on.
func (s *simulation) downgraded(lease *dlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, trusted := s.trusted[lease.Name()][lease]; trusted {
		s.trusted[lease.Name()][lease] = driver.Mode{Shared: true}
	}
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
	s := &simulation{seen: seen, store: store, granted: map[uint64]bool{},
		trusted: map[string]map[*dlock.Lease]driver.Mode{}, last: map[string]uint64{}, largest: map[string]uint64{}, seenTokens: map[string]map[uint64]bool{}}
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
	hot, hotLimit := random.IntN(4) == 0, random.IntN(3)
	for i := range 2 + random.IntN(2) {
		n := &network{inner: store, granted: s.note, rates: bad, random: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		c := dlock.New(n, &dlock.Options{TTL: simTTL, RequestTimeout: 700 * time.Millisecond})
		networks, clients = append(networks, n), append(clients, c)
		wg.Go(func() { trouble(n, rand.New(rand.NewPCG(seed, uint64(200+i)))) })
		for j := range 1 + random.IntN(3) {
			goroutine := rand.New(rand.NewPCG(seed, uint64(1000+10*i+j)))
			wg.Go(func() {
				if hot {
					s.useHot(ctx, c, goroutine, driver.Mode{Limit: hotLimit})
				}
				s.use(ctx, c, goroutine)
			})
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

// useHot is one goroutine of several that want the same lock, or the same permits, for a moment,
// again and again: the processes hand them over.
func (s *simulation) useHot(ctx context.Context, c *dlock.Client, random *rand.Rand, mode driver.Mode) {
	for range 20 {
		hold := time.Duration(random.Int64N(int64(simTTL / 1000)))
		if mode.Limit > 0 {
			s.hold(ctx, c, "hot permits", hold, mode, []dlock.Option{dlock.WithLimit(mode.Limit)})
		} else {
			s.hold(ctx, c, "hot", hold, mode, nil)
		}
	}
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
		var mode driver.Mode
		name := names[random.IntN(len(names))]
		switch random.IntN(6) {
		case 0, 1:
			mode.Shared = true
			opts = append(opts, dlock.WithShared())
		case 2:
			mode.Limit = 2
			opts = append(opts, dlock.WithLimit(2))
			name = "semaphore"
		}
		if random.IntN(5) == 0 && mode.Limit == 0 {
			s.holdAll(waiting, c, names, hold, mode, opts)
		} else {
			s.hold(waiting, c, name, hold, mode, opts)
		}
		stop()
	}
}

func (s *simulation) hold(ctx context.Context, c *dlock.Client, name string, hold time.Duration, mode driver.Mode, opts []dlock.Option) {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		s.checkError(err)
		return
	}
	s.trust(lease, mode)
	if mode == (driver.Mode{}) && hold%4 == 0 {
		s.downgraded(lease)
		s.checkError(lease.Downgrade(ctx))
	}
	select {
	case <-time.After(hold):
	case <-lease.Context().Done():
	}
	s.forget(lease)
	s.checkError(lease.Unlock(ctx))
}

func (s *simulation) holdAll(ctx context.Context, c *dlock.Client, names []string, hold time.Duration, mode driver.Mode, opts []dlock.Option) {
	leases, err := c.LockAll(ctx, names, opts...)
	if err != nil {
		s.checkError(err)
		return
	}
	// Each name is trusted through a lease of its own: a re-entry.
	var each []*dlock.Lease
	for _, name := range names {
		lease, err := c.Lock(leases.Context(), name, opts...)
		if err != nil {
			s.checkError(err)
			continue
		}
		s.trust(lease, mode)
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
