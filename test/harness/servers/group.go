package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Group is a set of servers that belong together.
type Group []*Server

// Run starts a server for a test, and stops it when the test ends. If the test
// failed, it logs the server's output.
func Run(t testing.TB, kind *Kind, args ...string) *Server {
	t.Helper()
	return keep(Start(kind, args...))(t)
}

// URL returns the URL of a server of that kind: from the environment if it is set
// there, otherwise of a server that is started for the test.
func URL(t testing.TB, kind *Kind) string {
	t.Helper()
	if url := os.Getenv(kind.Variable()); url != "" {
		return url
	}
	return Run(t, kind).URL()
}

// RunGroup starts independent servers for a test, and stops them when the test
// ends.
func RunGroup(t testing.TB, n int, kind *Kind, args ...string) Group {
	t.Helper()
	return keep(StartGroup(n, kind, args...))(t)
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

// keep returns a function that fails a test if s could not be started, stops it when the test ends, and logs
// the output of its servers if the test failed.
func keep[S interface{ all() Group }](s S, err error) func(t testing.TB) S {
	return func(t testing.TB) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				for _, server := range s.all() {
					t.Logf("log of %s at %s:\n%s", server.kind.Name, server.Addr(), server.Log())
				}
			}
			if err := s.all().Stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
}

func (s *Server) all() Group { return Group{s} }

func (g Group) all() Group { return g }

// Stop stops all servers.
func (g Group) Stop() error {
	return each(len(g), func(i int) error {
		if g[i] == nil { // never started
			return nil
		}
		return g[i].Stop()
	})
}

// withLogs adds the output of all servers to an error.
func (g Group) withLogs(err error) error {
	for _, s := range g {
		err = fmt.Errorf("%w\n%s", err, s.Log())
	}
	return err
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

// awaitLeader waits until a running server leads, and returns it.
func (g Group) awaitLeader(ctx context.Context, leads func(ctx context.Context, addr string) bool) (leader *Server, err error) {
	err = until(ctx, "a member leads", func(ctx context.Context) error {
		for _, s := range g.running() {
			if leads(ctx, s.Addr()) {
				leader = s
				return nil
			}
		}
		return errors.New("no member leads")
	})
	return leader, err
}

// awaitMaster waits until current names another server than old, and returns it.
func awaitMaster(ctx context.Context, old *Server, current func(ctx context.Context) (*Server, error)) (master *Server, err error) {
	err = until(ctx, "there is another master than "+old.Addr(), func(ctx context.Context) (err error) {
		if master, err = current(ctx); err == nil && master == old {
			err = errors.New("the old master is still named")
		}
		return err
	})
	return master, err
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
