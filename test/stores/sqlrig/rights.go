package sqlrig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// Rights are all that a store needs, once an administrator has created its tables.
var Rights = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}

// LeastRights shows that a user with exactly these rights can do everything, and that a user
// without any one of them cannot. If tables are missing and the user may not create them, the
// error says so.
func (d *Database) LeastRights(t *testing.T, parameters string) {
	t.Helper()
	raw := d.URL(t, parameters)
	admin := d.DB(t, raw)
	user := func(rights ...string) string {
		name := fmt.Sprintf("user%d", databases.Add(1))
		if err := d.CreateUser(t.Context(), admin, name, "pw"); err != nil {
			t.Fatal(err)
		}
		if len(rights) > 0 {
			if err := d.Grant(t.Context(), admin, name, strings.Join(rights, ", ")); err != nil {
				t.Fatal(err)
			}
		}
		return As(t, raw, name, "pw")
	}
	if err := d.useEverything(t, user()); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a user who may do nothing, where there is no table: %v; want ErrDenied", err)
	} else {
		t.Logf("without tables: %v", err)
	}
	_, opts, err := d.Pool(raw)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := sqllock.Schema(d.Dialect, opts.TablePrefix)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what exists is left alone
		Exec(t, admin, texts...)
	}
	if err := d.useEverything(t, user(Rights...)); err != nil {
		t.Errorf("a user with %v: %v", Rights, err)
	}
	for i, right := range Rights {
		err := d.useEverything(t, user(slices.Delete(slices.Clone(Rights), i, i+1)...))
		if !errors.Is(err, driver.ErrDenied) {
			t.Errorf("a user without %s: %v; want ErrDenied", right, err)
		} else {
			t.Logf("without %s: %v", right, err)
		}
	}
}

// useEverything makes every call that a store has, and returns the first error.
func (d *Database) useEverything(t *testing.T, raw string) error {
	t.Helper()
	ctx := Within(t)
	opened, err := d.Store(ctx, raw)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }() // after what it is about
	store := opened.(owning).Store
	steps := map[string]func() error{
		"acquire": func() error { return acquireAndRelease(ctx, store) },
		"all": func() error {
			grants, err := store.AcquireAll(ctx, []driver.Request{Request("p"), Request("q")})
			if err != nil {
				return err
			}
			return errors.Join(store.Release(ctx, grants[0]), store.Break(ctx, grants[1].Name, grants[1].Token))
		},
		"fair":  func() error { return queueAndLeave(ctx, store) },
		"watch": func() error { return watchOnce(ctx, store) },
		"list": func() error {
			for _, err := range store.List(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"diagnose": func() error {
			findings, err := store.Diagnose(ctx)
			for _, f := range findings {
				if f.Level == driver.LevelProblem {
					err = errors.Join(err, fmt.Errorf("%w: %s: %s", driver.ErrDenied, f.Check, f.Message))
				}
			}
			return err
		},
	}
	for _, name := range []string{"list", "acquire", "all", "fair", "watch", "diagnose"} {
		if err := steps[name](); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func acquireAndRelease(ctx context.Context, store driver.Store) error {
	grant, err := store.Acquire(ctx, Request("x"))
	if err != nil {
		return err
	}
	if errs := store.Renew(ctx, []driver.Grant{grant}); errs != nil {
		return errs[0]
	}
	return store.Release(ctx, grant)
}

// queueAndLeave waits in the queue behind another owner, and gives up.
func queueAndLeave(ctx context.Context, store driver.Store) error {
	first, second := Request("fair"), Request("fair")
	first.Fair, first.Queue = true, true
	second.Fair, second.Queue = true, true
	grant, err := store.Acquire(ctx, first)
	if err != nil {
		return err
	}
	if _, err := store.Acquire(ctx, second); !errors.Is(err, driver.ErrHeld) {
		return fmt.Errorf("the second of two: %w", err)
	}
	if err := store.Release(ctx, driver.Grant{Name: "fair", Owner: second.Owner}); !errors.Is(err, driver.ErrNotHeld) {
		return fmt.Errorf("leaving the queue: %w", err)
	}
	return store.Release(ctx, grant)
}

// watchOnce waits until it is woken.
func watchOnce(ctx context.Context, store interface {
	driver.Store
	driver.Watcher
}) error {
	grant, err := store.Acquire(ctx, Request("watched"))
	if err != nil {
		return err
	}
	woken := make(chan struct{}, 1)
	stop, err := store.Watch(ctx, Request("watched"), func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	if err := store.Release(ctx, grant); err != nil {
		return err
	}
	select {
	case <-woken:
		return nil
	case <-time.After(limit):
		return errors.New("nobody was woken")
	}
}

// Refused demands an error that says why, from opening a store or from the first
// attempt.
func (d *Database) Refused(t *testing.T, raw, says string) {
	t.Helper()
	store, err := d.Store(Within(t), raw)
	if err == nil {
		defer func() { _ = store.Close() }() // after what it is about
		_, err = store.Acquire(Within(t), Request("x"))
	}
	if err == nil || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v; want an error that says %q", raw, err, says)
	}
}

// Prefixes shows that a prefix that is no name of a table is refused, and that stores with
// different prefixes share no locks.
func (d *Database) Prefixes(t *testing.T, raw string) {
	t.Helper()
	db := d.DB(t, raw)
	for _, prefix := range []string{"a-b", "1a", "x;drop", "ä", strings.Repeat("x", 41), "a b", `a"`, "a`", "a.b"} {
		if _, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: d.Dialect, TablePrefix: prefix}); err == nil {
			t.Errorf("table prefix %q is accepted", prefix)
		}
		if _, err := sqllock.Schema(d.Dialect, prefix); err == nil {
			t.Errorf("table prefix %q is accepted for a schema", prefix)
		}
	}
	for _, prefix := range []string{"", "By_Hand_2", strings.Repeat("x", 40), "select_"} {
		store := d.Opened(t, With(raw, "table_prefix="+prefix))
		if _, err := store.Acquire(Within(t), Request("x")); err != nil {
			t.Errorf("with the prefix %q: %v", prefix, err)
		}
	}
}
