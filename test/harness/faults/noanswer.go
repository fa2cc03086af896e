package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// NoAnswer checks that each call whose context ends before the server answers returns the
// context's error with ErrUnreachable, and says that there was no answer. The grant is of a lock
// that is held. The server has stopped answering. behind is what a Release says whose Acquire
// has not ended.
func NoAnswer(t testing.TB, store driver.Store, grant driver.Grant, abandoned driver.Request, behind string) {
	t.Helper()
	const silent = "no answer"
	check := func(what, says string, call func(context.Context) error) {
		t.Helper()
		var err error
		for _, timeout := range []time.Duration{200 * time.Millisecond, 2 * time.Second} { // a busy machine gets a second try
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			err = call(ctx)
			cancel()
			if err != nil && strings.Contains(err.Error(), says) {
				break
			}
		}
		if !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want ErrUnreachable with the context's error, and %q", what, err, says)
		}
	}
	check("Acquire", silent, func(ctx context.Context) error { _, err := store.Acquire(ctx, abandoned); return err })
	check("Release behind that Acquire", behind, func(ctx context.Context) error {
		return store.Release(ctx, driver.Grant{Name: abandoned.Name, Owner: abandoned.Owner})
	})
	check("Renew", silent, func(ctx context.Context) error { return errors.Join(store.Renew(ctx, []driver.Grant{grant})...) })
	check("Release", silent, func(ctx context.Context) error { return store.Release(ctx, grant) })
	check("Break", silent, func(ctx context.Context) error { return store.(driver.Breaker).Break(ctx, grant.Name, grant.Token) })
	check("Find", silent, func(ctx context.Context) error { _, _, err := store.(driver.Finder).Find(ctx, grant.Name); return err })
	check("Diagnose", silent, func(ctx context.Context) error { _, err := store.(driver.Diagnoser).Diagnose(ctx); return err })
	if lister, ok := store.(driver.Lister); ok {
		check("List", silent, func(ctx context.Context) error {
			for _, err := range lister.List(ctx, "") {
				return err
			}
			return nil
		})
	}
}
