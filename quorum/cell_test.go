package quorum_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// cell is a member at the other end of a network: a store in memory whose server
// can be restarted, and which may be out of reach in several ways.
type cell struct {
	mu     sync.Mutex
	server *memlock.Store
	fault  fault
	held   []func()             // what fault late keeps back
	delay  func() time.Duration // of each way; nil is none
	clock  func() uint64        // the least token; nil is none
	fast   float64              // by how much its clock is, as a part
	calls  map[string]int
	stored map[string]uint64 // the largest token of each name that its server knows
}

type fault int

const (
	up   fault = iota
	gone       // refuses connections
	mute       // never answers, and does nothing
	lost       // does what it is told, but the answer gets lost
	late       // never answers, and does it when deliver is called
)

func newCell() *cell {
	return &cell{server: memlock.New(), calls: make(map[string]int), stored: make(map[string]uint64)}
}

// cells returns n of them.
func cells(n int) (all []*cell) {
	for range n {
		all = append(all, newCell())
	}
	return all
}

// open returns a new client of a quorum, as another machine would have it.
func open(t *testing.T, members []*cell, flaws ...func(*quorum.Store)) *quorum.Store {
	t.Helper()
	stores := make([]driver.Store, len(members))
	for i, c := range members {
		stores[i] = link{c}
	}
	s, err := quorum.New(stores, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, flaw := range flaws {
		flaw(s)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// link is one connection to a cell: no two are the same store.
type link struct{ *cell }

func (c *cell) set(f fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// wipe restarts the server: it has forgotten everything.
func (c *cell) wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = memlock.New()
	c.stored = make(map[string]uint64)
}

// deliver does what was kept back.
func (c *cell) deliver() {
	c.mu.Lock()
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (c *cell) count(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[call]
}

// locks lists the names that are held there, whatever the network does.
func (c *cell) locks() (names []string) {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	for info := range server.List(context.Background(), "") {
		names = append(names, info.Name)
	}
	return names
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call takes f to the server and its answer back.
func (c *cell) call(ctx context.Context, what string, f func(context.Context, *memlock.Store) error) error {
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
	way := func() error {
		if delay == nil {
			return nil
		}
		return pause(ctx, delay())
	}
	switch fault {
	case gone:
		return errRefused
	case mute, late:
		return hang(ctx)
	case up, lost:
	}
	if err := way(); err != nil {
		return err
	}
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	err := f(ctx, server)
	if fault == lost {
		return hang(ctx)
	}
	if err := way(); err != nil {
		return err
	}
	return err
}

func (c *cell) know(name string, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored[name] = max(c.stored[name], token)
}

func (c *cell) knows(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored[name]
}

func (c *cell) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	err = c.call(ctx, "Acquire", func(ctx context.Context, s *memlock.Store) (err error) {
		asked := req.TTL
		req.TTL -= time.Duration(float64(req.TTL) * c.fast)
		if c.clock != nil {
			req.Floor = max(req.Floor, c.clock())
		}
		if grant, err = s.Acquire(ctx, req); err == nil {
			grant.TTL = asked
			c.know(req.Name, grant.Token)
		}
		return err
	})
	return grant, err
}

func (c *cell) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
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

func (c *cell) Release(ctx context.Context, grant driver.Grant) error {
	return c.call(ctx, "Release", func(ctx context.Context, s *memlock.Store) error { return s.Release(ctx, grant) })
}

func (c *cell) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (raised driver.Grant, err error) {
	err = c.call(ctx, "RaiseToken", func(ctx context.Context, s *memlock.Store) (err error) {
		if raised, err = s.RaiseToken(ctx, grant, token); err == nil {
			c.know(grant.Name, raised.Token)
		}
		return err
	})
	return raised, err
}

func (c *cell) Break(ctx context.Context, name string, token uint64) error {
	return c.call(ctx, "Break", func(ctx context.Context, s *memlock.Store) error { return s.Break(ctx, name, token) })
}

func (c *cell) Identify(ctx context.Context) (string, error) {
	return fmt.Sprintf("%p", c), c.call(ctx, "Identify", func(context.Context, *memlock.Store) error { return nil })
}

func (c *cell) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	err = c.call(ctx, "Watch", func(ctx context.Context, s *memlock.Store) (err error) {
		stop, err = s.Watch(ctx, req, wake)
		return err
	})
	return stop, err
}

func (c *cell) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
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

func (c *cell) Traits() driver.Traits { return memlock.New().Traits() }
func (c *cell) Close() error          { return nil }

// request asks for name as an owner that is new.
func request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl}
}

func mustAcquire(t *testing.T, s driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	grant, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire of %q, which is free: %v", req.Name, err)
	}
	return grant
}

// settle makes sure that a client knows all members, and that nothing is under way.
func settle(t *testing.T, s driver.Store) {
	t.Helper()
	if err := s.Release(t.Context(), mustAcquire(t, s, request("settled", time.Minute))); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}
