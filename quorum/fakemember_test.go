package quorum_test

import (
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
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// fakeMember is a member behind a network: a store in memory whose server can be restarted,
// and may be out of reach in several ways.
type fakeMember struct {
	mu     sync.Mutex
	server *memlock.Store
	fault  fault
	held   []func()             // the calls that the fault late delays
	delay  func() time.Duration // in each direction; nil is no delay
	clock  func() uint64        // the least token; nil is no floor
	fast   float64              // by which fraction its clock is fast
	calls  map[string]int
	stored map[string]uint64 // the last token of each name that its server knows
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
	return &fakeMember{server: memlock.New(), calls: make(map[string]int), stored: make(map[string]uint64)}
}

func fakeMembers(n int) (all []*fakeMember) {
	for range n {
		all = append(all, newFakeMember())
	}
	return all
}

// open returns a new quorum of the members, as another process would have it.
func open(t *testing.T, members []*fakeMember) *quorum.Store {
	t.Helper()
	return openWith(t, members, nil)
}

func openWith(t *testing.T, members []*fakeMember, opts *quorum.Options) *quorum.Store {
	t.Helper()
	stores := make([]driver.Store, len(members))
	for i, c := range members {
		stores[i] = conn{c}
	}
	s, err := quorum.New(stores, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// conn is one connection to a member: two of them are different stores.
type conn struct{ *fakeMember }

func (c *fakeMember) set(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// restartEmpty restarts the server without its data.
func (c *fakeMember) restartEmpty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = memlock.New()
	c.stored = make(map[string]uint64)
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
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	for info := range server.List(context.Background(), "") {
		names = append(names, info.Name)
	}
	return names
}

var errRefused = fmt.Errorf("%w: %w", driver.ErrUnreachable, errors.New("connection refused"))

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// call carries out f on the server, as far as the network permits.
func (c *fakeMember) call(ctx context.Context, what string, f func(context.Context, *memlock.Store) error) error {
	c.mu.Lock()
	c.calls[what]++
	fault, delay := c.fault, c.delay
	if fault == late {
		c.held = append(c.held, func() {
			c.mu.Lock()
			server := c.server
			c.mu.Unlock()
			_ = f(context.Background(), server)
		})
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
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	err := f(ctx, server)
	if fault == lost {
		return hang(ctx)
	}
	if err := travel(); err != nil {
		return err
	}
	return err
}

func (c *fakeMember) noteToken(name string, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored[name] = max(c.stored[name], token)
}

// tokenStep is that of the members.
var tokenStep = memlock.New().Traits().TokenStep

func lastToken(grant driver.Grant) uint64 { return grant.Token + tokenStep - 1 }

func (c *fakeMember) knownToken(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored[name]
}

func (c *fakeMember) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	err = c.call(ctx, "Acquire", func(ctx context.Context, s *memlock.Store) (err error) {
		asked := req.TTL
		req.TTL -= time.Duration(float64(req.TTL) * c.fast)
		if c.clock != nil {
			req.Floor = max(req.Floor, c.clock())
		}
		if grant, err = s.Acquire(ctx, req); err == nil {
			grant.TTL = asked
			c.noteToken(req.Name, lastToken(grant))
		}
		return err
	})
	return grant, err
}

func (c *fakeMember) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	if err := c.call(ctx, "Renew", func(ctx context.Context, s *memlock.Store) error {
		errs = s.Renew(ctx, grants)
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
	return c.call(ctx, "Release", func(ctx context.Context, s *memlock.Store) error { return s.Release(ctx, grant) })
}

func (c *fakeMember) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (raised driver.Grant, err error) {
	err = c.call(ctx, "RaiseToken", func(ctx context.Context, s *memlock.Store) (err error) {
		if raised, err = s.RaiseToken(ctx, grant, token); err == nil {
			c.noteToken(grant.Name, lastToken(raised))
		}
		return err
	})
	return raised, err
}

func (c *fakeMember) Break(ctx context.Context, name string, token uint64) error {
	return c.call(ctx, "Break", func(ctx context.Context, s *memlock.Store) error { return s.Break(ctx, name, token) })
}

func (c *fakeMember) Identify(ctx context.Context) (string, error) {
	return fmt.Sprintf("%p", c), c.call(ctx, "Identify", func(context.Context, *memlock.Store) error { return nil })
}

func (c *fakeMember) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	err = c.call(ctx, "Watch", func(ctx context.Context, s *memlock.Store) (err error) {
		stop, err = s.Watch(ctx, req, wake)
		return err
	})
	return stop, err
}

func (c *fakeMember) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		var all []driver.Info
		if err := c.call(ctx, "List", func(ctx context.Context, s *memlock.Store) error {
			for info := range s.List(ctx, prefix) {
				all = append(all, info)
			}
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

func (c *fakeMember) Traits() driver.Traits { return memlock.New().Traits() }
func (c *fakeMember) Close() error          { return nil }

// request returns a request of a new owner.
func request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl}
}

func mustAcquire(t *testing.T, s driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire(%q): %v; want a grant", req.Name, err)
	}
	return grant
}

// settle waits until the quorum has identified all members, and no call is under way.
func settle(t *testing.T, s driver.Store) {
	t.Helper()
	if err := s.Release(t.Context(), mustAcquire(t, s, request("settled", time.Minute))); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}
