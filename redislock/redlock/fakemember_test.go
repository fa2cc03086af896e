package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// fakeMember is a member behind a network: its server can be restarted, and may be out of reach in
// several ways.
type fakeMember struct {
	mu     sync.Mutex
	server *fakeServer
	fault  fault
	held   []func()             // the calls that the fault late delays
	delay  func() time.Duration // in each direction; nil is no delay
	fast   float64              // by which fraction its clock is fast
	calls  map[string]int

	findings []driver.Finding
}

type fault int

const (
	up   fault = iota
	gone       // refuses connections
	mute       // never answers, and does nothing
	lost       // carries out calls, but the answers are lost
	late       // never answers, and carries out calls when deliver is called
)

func newFakeMember() *fakeMember {
	return &fakeMember{server: newFakeServer(), calls: make(map[string]int)}
}

func fakeMembers(n int) (all []*fakeMember) {
	for range n {
		all = append(all, newFakeMember())
	}
	return all
}

// bubble runs a test in virtual time, with a Redlock of n members.
func bubble(t *testing.T, n int, test func(t *testing.T, all []*fakeMember, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(n)
		test(t, all, start(t, all))
	})
}

// start returns a new Redlock of the members, as another process would have it.
func start[M master.Store](t *testing.T, members []M) *Store {
	t.Helper()
	return startWith(t, members, nil)
}

func startWith[M master.Store](t *testing.T, members []M, opts *Options) *Store {
	t.Helper()
	s, err := of(members, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func of[M master.Store](members []M, opts *Options) (*Store, error) {
	names := make([]string, len(members))
	for i := range names {
		names[i] = fmt.Sprintf("member %d", i+1)
	}
	return build(names, opts, func(i int) (master.Store, error) { return members[i], nil })
}

func (c *fakeMember) set(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// slowDown makes calls take that long in each direction from now on.
func (c *fakeMember) slowDown(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = func() time.Duration { return delay }
}

// restartEmpty restarts the server without its data.
func (c *fakeMember) restartEmpty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clock := c.server.clock
	c.server = newFakeServer()
	c.server.clock = clock
}

// at returns the server, whatever the network does.
func (c *fakeMember) at() *fakeServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// deliver carries out the delayed calls.
func (c *fakeMember) deliver() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (c *fakeMember) count(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[call]
}

// locks lists the names that the server holds, whatever the network does.
func (c *fakeMember) locks() (names []string) {
	for _, info := range c.at().list(context.Background(), "") {
		names = append(names, info.Name)
	}
	return names
}

// take acquires a lock of the server, whatever the network does.
func (c *fakeMember) take(t *testing.T, req driver.Request, floor uint64) {
	t.Helper()
	if _, err := c.at().acquire(t.Context(), req, floor); err != nil {
		t.Fatal(err)
	}
}

// draw makes the server draw tokens of a name, of which the first is floor.
func (c *fakeMember) draw(t *testing.T, name string, floor uint64) {
	t.Helper()
	req := request(name, time.Second)
	c.take(t, req, floor)
	if err := c.at().locks.Release(t.Context(), driver.Grant{Name: name, Owner: req.Owner}); err != nil {
		t.Fatal(err)
	}
}

var errRefused = fmt.Errorf("%w: %w", driver.ErrUnreachable, errors.New("connection refused"))

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// call carries out f on the server, as far as the network permits.
func (c *fakeMember) call(ctx context.Context, what string, f func(context.Context, *fakeServer) error) error {
	c.mu.Lock()
	c.calls[what]++
	fault, delay := c.fault, c.delay
	if fault == late {
		c.held = append(c.held, func() { _ = f(context.Background(), c.at()) })
	}
	c.mu.Unlock()
	travel := func() error {
		if delay == nil {
			return nil
		}
		return backoff.Sleep(ctx, delay())
	}
	switch fault {
	case gone:
		return errRefused
	case mute, late:
		return hang(ctx)
	case up, lost:
	}
	if err := travel(); err != nil {
		return err
	}
	err := f(ctx, c.at())
	if fault == lost {
		return hang(ctx)
	}
	return cmp.Or(travel(), err)
}

// knownToken returns the last token of a name that the server knows.
func (c *fakeMember) knownToken(name string) uint64 {
	s := c.at()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[name]
}

func (c *fakeMember) Acquire(ctx context.Context, req driver.Request, floor uint64) (token uint64, err error) {
	err = c.call(ctx, "Acquire", func(ctx context.Context, s *fakeServer) (err error) {
		req.TTL -= time.Duration(float64(req.TTL) * c.fast)
		token, err = s.acquire(ctx, req, floor)
		return err
	})
	return token, err
}

func (c *fakeMember) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	if err := c.call(ctx, "Renew", func(ctx context.Context, s *fakeServer) error {
		errs = s.locks.Renew(ctx, grants)
		return nil
	}); err != nil {
		errs = make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (c *fakeMember) Release(ctx context.Context, grant driver.Grant) error {
	return c.call(ctx, "Release", func(ctx context.Context, s *fakeServer) error { return s.locks.Release(ctx, grant) })
}

func (c *fakeMember) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (raised uint64, err error) {
	err = c.call(ctx, "RaiseToken", func(ctx context.Context, s *fakeServer) (err error) {
		raised, err = s.raiseToken(ctx, grant, token)
		return err
	})
	return raised, err
}

func (c *fakeMember) Break(ctx context.Context, name string, token uint64) error {
	return c.call(ctx, "Break", func(ctx context.Context, s *fakeServer) error { return s.breakLock(ctx, name, token) })
}

func (c *fakeMember) Identify(ctx context.Context) (string, error) {
	return fmt.Sprintf("%p", c), c.call(ctx, "Identify", func(context.Context, *fakeServer) error { return nil })
}

func (c *fakeMember) Clock() uint64 {
	if s := c.at(); s.clock != nil {
		return s.clock()
	}
	return 0
}

func (c *fakeMember) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	err = c.call(ctx, "Watch", func(ctx context.Context, s *fakeServer) (err error) {
		stop, err = s.locks.Watch(ctx, req, wake)
		return err
	})
	return stop, err
}

func (c *fakeMember) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var all []driver.Info
		if err := c.call(ctx, "List", func(ctx context.Context, s *fakeServer) error {
			all = s.list(ctx, prefix)
			return nil
		}); err != nil {
			yield(driver.Info{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (c *fakeMember) Find(ctx context.Context, name string) (found driver.Info, held bool, err error) {
	err = c.call(ctx, "Find", func(ctx context.Context, s *fakeServer) error {
		for _, info := range s.list(ctx, name) {
			if info.Name == name {
				found, held = info, true
			}
		}
		return nil
	})
	return found, held, err
}

func (c *fakeMember) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	return c.findings, c.call(ctx, "Diagnose", func(context.Context, *fakeServer) error { return nil })
}

func (c *fakeMember) Close() error { return nil }

// request returns a request of a new owner.
func request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl}
}

func mustAcquire(t *testing.T, s *Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire(%q): %v; want a grant", req.Name, err)
	}
	return grant
}

func mustRelease(t *testing.T, s *Store, grant driver.Grant) {
	t.Helper()
	if err := s.Release(t.Context(), grant); err != nil {
		t.Fatalf("Release(%q): %v", grant.Name, err)
	}
}

func mustRenew(t *testing.T, s *Store, grants ...driver.Grant) {
	t.Helper()
	if errs := s.Renew(t.Context(), grants); errs != nil {
		t.Fatalf("Renew: %v", errs)
	}
}

// checkFree checks that no member holds a lock.
func checkFree(t *testing.T, all []*fakeMember, when string) {
	t.Helper()
	for i, c := range all {
		if left := c.locks(); len(left) > 0 {
			t.Errorf("%s member %d holds %q", when, i+1, left)
		}
	}
}

// settle waits until the store has identified all members, and no call is under way.
func settle(t *testing.T, s *Store) {
	t.Helper()
	mustRelease(t, s, mustAcquire(t, s, request("settled", time.Minute)))
	synctest.Wait()
}
