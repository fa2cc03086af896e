package drivertest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memlock"
)

// mandatory is a store without extensions and without traits.
type mandatory struct{ driver.Store }

func (mandatory) Traits() driver.Traits { return driver.Traits{Store: "mandatory"} }

// unanswered is a store whose server never answers. Its calls end with their contexts.
type unanswered struct{ mandatory }

func (unanswered) wait(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, context.Cause(ctx))
}

func (s unanswered) Acquire(ctx context.Context, _ driver.Request) (driver.Grant, error) {
	return driver.Grant{}, s.wait(ctx)
}

func (s unanswered) Renew(ctx context.Context, grants []driver.Grant) []error {
	err := s.wait(ctx)
	errs := make([]error, len(grants))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (s unanswered) Release(ctx context.Context, _ driver.Grant) error { return s.wait(ctx) }

// The calls of a store without answers end with their contexts, those of the cleanup too, which
// begins when the time of the check is over.
func TestSlowCleanupIsNotACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := drivertest.Check(t.Context(), drivertest.Config{
			Open: func(context.Context) (driver.Store, error) { return unanswered{mandatory{memlock.New()}}, nil },
		})
		if err == nil {
			t.Fatal("a store without answers keeps the contract")
		}
		if strings.Contains(err.Error(), "did not return within") {
			t.Errorf("calls that ended with their contexts are reported as calls that hang: %v", err)
		}
		<-time.After(time.Hour) // for what is left of checks that were given up
	})
}

// namesOf records which names were acquired.
type namesOf struct {
	mandatory
	mu   sync.Mutex
	seen map[string]bool
}

func (s *namesOf) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	s.seen[req.Name] = true
	s.mu.Unlock()
	return s.Store.Acquire(ctx, req)
}

// The clauses about clients run once for a store that is not fair.
func TestClausesRunOnceWithoutFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &namesOf{mandatory: mandatory{memlock.New()}, seen: make(map[string]bool)}
		open := func(context.Context) (driver.Store, error) { return s, nil }
		if err := drivertest.Check(t.Context(), drivertest.Config{Open: open}); err != nil {
			t.Error(err)
		}
		for _, clause := range []string{"client-waits", "client-cancel"} {
			var names []string
			for name := range s.seen {
				if strings.Contains(name, "/"+clause+"/") {
					names = append(names, name)
				}
			}
			if len(names) != 1 {
				t.Errorf("%s used the names %q; want one", clause, names)
			}
		}
	})
}
