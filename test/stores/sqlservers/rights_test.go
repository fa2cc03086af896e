package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestLeastRights: once an administrator has created the tables, a user with exactly these
// rights can do everything, and a user without any one of them cannot. If tables are missing
// and the user may not create them, the error says so.
func TestLeastRights(t *testing.T) {
	rights := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	eachScheme(t, func(t *testing.T, s target) {
		mustBeDenied := func(what string, rights []string) {
			t.Helper()
			user, _ := s.user(t, strings.Join(rights, ", "))
			err := user.useEverything(t)
			t.Logf("%s: %v", what, err)
			if !errors.Is(err, driver.ErrDenied) {
				t.Errorf("%s: %v; want ErrDenied", what, err)
			}
		}
		mustBeDenied("a user who may do nothing, where there is no table", nil)
		tables, err := sqllock.Schema(s.dialect, "")
		check(t, err)
		run(t, s.admin(t), slices.Concat(tables, tables)...) // what exists is left alone
		user, _ := s.user(t, strings.Join(rights, ", "))
		if err := user.useEverything(t); err != nil {
			t.Errorf("a user with %v: %v", rights, err)
		}
		for i, right := range rights {
			mustBeDenied("a user without "+right, slices.Delete(slices.Clone(rights), i, i+1))
		}
	})
}

// useEverything makes every call that a store has, and returns the first error.
func (s target) useEverything(t *testing.T) error {
	t.Helper()
	ctx := within(t)
	opened, err := s.store(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }() // the test has its result already
	store := opened.(owning).Store
	for _, err := range store.List(ctx, "") {
		if err != nil {
			return err
		}
	}
	grant, err := store.Acquire(ctx, request("x"))
	if err != nil {
		return err
	}
	err = errors.Join(errors.Join(store.Renew(ctx, []driver.Grant{grant})...), store.Release(ctx, grant))
	if err != nil {
		return err
	}
	grants, err := store.AcquireAll(ctx, []driver.Request{request("p"), request("q")})
	if err != nil {
		return err
	}
	err = errors.Join(store.Release(ctx, grants[0]), store.Break(ctx, grants[1].Name, grants[1].Token), useQueue(ctx, store), useShares(ctx, store))
	if err != nil {
		return err
	}
	findings, err := store.Diagnose(ctx)
	for _, f := range findings {
		if f.Level == driver.LevelProblem {
			err = errors.Join(err, fmt.Errorf("%w: %s: %s", driver.ErrDenied, f.Check, f.Message))
		}
	}
	return err
}

// useQueue queues and watches behind another owner until the release, and gives up its place.
func useQueue(ctx context.Context, store *sqllock.Store) error {
	first, second := fairRequest("fair"), fairRequest("fair")
	grant, err := store.Acquire(ctx, first)
	if err != nil {
		return err
	}
	if _, err := store.Acquire(ctx, second); !errors.Is(err, driver.ErrHeld) {
		return fmt.Errorf("the second of two: %w", err)
	}
	woken, wake := context.WithCancel(ctx)
	defer wake()
	stop, err := store.Watch(ctx, request("fair"), wake)
	if err != nil {
		return err
	}
	defer stop()
	if err := store.Release(ctx, grant); err != nil {
		return err
	}
	<-woken.Done()
	if err := store.Release(ctx, driver.Grant{Name: "fair", Owner: second.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		return fmt.Errorf("leaving the queue: %w", err)
	}
	return ctx.Err() // the waiter was woken in time
}

// mustBeRejected demands an error that says why, from opening a store or from the first
// attempt.
func (s target) mustBeRejected(t *testing.T, says string) {
	t.Helper()
	store, err := s.store(within(t))
	if err == nil {
		defer func() { _ = store.Close() }() // the test has its result already
		_, err = store.Acquire(within(t), request("x"))
	}
	if err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want an error that says %q", s.url, err, says)
	}
}

func TestBadInput(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.on(t, d.passwordServer(t))
		run(t, s.admin(t), d.createUser("ann", "right"))
		for _, scheme := range schemes {
			s := s.with("scheme=" + scheme)
			s.as("ann", "wrong").mustBeRejected(t, d.wrongPassword)
			s.as("nobody", "x").mustBeRejected(t, d.wrongPassword)
			s.at("127.0.0.1:1").mustBeRejected(t, "connection refused")
			s.missing().mustBeRejected(t, d.noDatabase)
		}
	})
}

// TestReadOnly: a replica, or a server that is read-only, is rejected, with tables or without.
func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		pair := d.pair(t, servers.PairOptions{})
		replicaIsRejected := func() {
			t.Helper()
			for _, scheme := range schemes {
				target{d, pair.Replica.URL()}.with("scheme="+scheme).mustBeRejected(t, "read-only")
			}
		}
		replicaIsRejected()
		target{d, pair.Primary.URL()}.open(t)
		check(t, pair.WaitCaughtUp(t.Context()))
		replicaIsRejected()
	})
}
