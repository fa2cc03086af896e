package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Group is a set of servers that belong together.
type Group []*Server

// RunGroup starts independent servers for a test, and stops them when the test
// ends.
func RunGroup(t testing.TB, n int, kind *Kind, args ...string) Group {
	t.Helper()
	g, err := StartGroup(n, kind, args...)
	if err != nil {
		t.Fatal(err)
	}
	g.stopAfter(t)
	return g
}

// StartGroup starts independent servers.
func StartGroup(n int, kind *Kind, args ...string) (Group, error) {
	return startEach(n, func(int) (*Server, error) { return Start(kind, args...) })
}

// startEach starts n servers at the same time, all or none.
func startEach(n int, start func(i int) (*Server, error)) (Group, error) {
	g := make(Group, n)
	if err := each(n, func(i int) (err error) {
		g[i], err = start(i)
		return err
	}); err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	return g, nil
}

// Stop stops all servers.
func (g Group) Stop() error {
	return each(len(g), func(i int) error {
		if g[i] == nil { // never started
			return nil
		}
		return g[i].Stop()
	})
}

// Addrs returns the addresses of the servers.
func (g Group) Addrs() []string {
	addrs := make([]string, len(g))
	for i, s := range g {
		addrs[i] = s.Addr()
	}
	return addrs
}

// At returns the server with that address, or nil.
func (g Group) At(addr string) *Server {
	for _, s := range g {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// running returns the servers that have not ended. They may be paused.
func (g Group) running() Group {
	var running Group
	for _, s := range g {
		if s.proc != nil && !s.proc.Ended() {
			running = append(running, s)
		}
	}
	return running
}

func (g Group) list() string { return strings.Join(g.Addrs(), ",") }

// stopAfter stops the servers when the test ends. If the test failed, it logs
// their output.
func (g Group) stopAfter(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range g {
				t.Logf("log of %s at %s:\n%s", s.kind.Name, s.Addr(), s.Log())
			}
		}
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// each calls do for 0 to n-1 at the same time and joins the errors.
func each(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// until polls check until it succeeds, for changes among servers that cause no
// event.
func until(ctx context.Context, what string, check func(ctx context.Context) error) error {
	const interval = 4 * pollEvery // a check is several calls
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var missing error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil { // otherwise the error only reports the end of ctx
			missing = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w (%w)", what, missing, context.Cause(ctx))
		}
	}
}
