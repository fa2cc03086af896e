package sqlservers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// The conformance kit keeps a server busy enough without other tests.

func TestConformance(t *testing.T) {
	eachAlone(t, func(t *testing.T, d *database) { d.eachScheme(t, func(t *testing.T, s target) { s.conform(t) }) })
}

// The schemes differ in their statements, not in how they use connections.
func TestConformanceOverOneConnection(t *testing.T) {
	eachAlone(t, func(t *testing.T, d *database) { d.target(t, "scheme=row").with("max_open=1").conform(t) })
}

// conform runs the conformance kit.
func (s target) conform(t *testing.T) {
	t.Helper()
	store := s.bundle(t, nil)
	store.Addr = s.parsed().Host // perhaps that of a pool in front of the server
	store.Conform(t, drivertest.Config{TTL: 400 * time.Millisecond * slowdown, Parallel: 8 / slowdown})
}

// oneConnection uses everything at once over a single connection.
func (s target) oneConnection(t *testing.T) {
	t.Helper()
	client := s.with("max_open=1").client(t)
	ctx := within(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for turn := range 4 {
				var opts []dlock.Option
				if turn%2 == 0 {
					opts = append(opts, dlock.WithFair())
				}
				name := fmt.Sprint("name/", i%2, turn%2)
				switch turn {
				case 2:
					opts = append(opts, dlock.WithShared())
				case 3:
					name += "/permits"
					opts = append(opts, dlock.WithLimit(2))
				}
				err := client.Do(ctx, name, func(ctx context.Context) error {
					for info, err := range client.Locks(ctx, "name/") {
						if err != nil {
							return err
						}
						if _, _, err := client.Find(ctx, info.Name); err != nil { // while listing
							return err
						}
					}
					return nil
				}, opts...)
				if err != nil {
					t.Errorf("Do(%q): %v", name, err)
				}
			}
		})
	}
	group.Wait()
	if _, err := client.Diagnose(ctx); err != nil {
		t.Errorf("diagnose: %v", err)
	}
}

// TestDriverSettings: what an application sets for itself makes no difference.
func TestDriverSettings(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, settings := range d.settings {
			t.Run(settings, func(t *testing.T) {
				t.Parallel()
				s := d.target(t, settings)
				for _, scheme := range schemes {
					s.with("scheme=" + scheme).oneConnection(t)
				}
				s.names(t)
			})
		}
	})
}

// oddNames are all different, whatever a database's collation makes of them.
var oddNames = []string{
	"a", "A", "a ", " a", "a  ", "a/b", "a/b/c", "a%", "a_", "ab", "a*", "a?", "a[b]", `a\`, `a\\`, `it's`, `"quoted"`, "a;--", "a`b", "$1", "?", ":name", "{a}",
	"ä", "Ä", "a\u0308", "ß", "ss", "ı", "i", "İ", "名前", "🔒", "🔒🔒", "\u200b", "\u00a0", "null", "NULL", "0", "00", "1e3", "0x10", "\ufffd",
	strings.Repeat("x", driver.MaxNameBytes), strings.Repeat("x", driver.MaxNameBytes-1), strings.Repeat("🔒", driver.MaxNameBytes/4), strings.Repeat("名", driver.MaxNameBytes/3),
}

// names checks that each odd name is a lock of its own, and is listed as it is.
func (s target) names(t *testing.T) {
	t.Helper()
	store, contender := s.open(t), s.open(t)
	grants := acquire(t, store, oddNames...)
	for _, prefix := range append([]string{"", "名", "nothing", "a%b", "\x00", "a\x00", "a\n"}, oddNames...) {
		var want, got []string
		for _, name := range oddNames {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for info, err := range contender.List(within(t), prefix) {
			check(t, err)
			got = append(got, info.Name)
			if info.Holder.Note != info.Name {
				t.Errorf("%q has the holder of %q", info.Name, info.Holder.Note)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("prefix %q lists %q, want %q", prefix, got, want)
		}
	}
	for _, grant := range grants {
		mustBeHeld(t, contender, request(grant.Name))
		if errs := store.Renew(within(t), []driver.Grant{grant}); errs != nil {
			t.Errorf("Renew(%q): %v", grant.Name, errs[0])
		}
		release(t, store, grant)
	}
}

// TestPrefixes: a prefix that is no name of a table is rejected. Stores with different
// prefixes share no locks.
func TestPrefixes(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		db := s.admin(t)
		for _, prefix := range []string{"a-b", "1a", "x;drop", "ä", strings.Repeat("x", 41), "a b", `a"`, "a`", "a.b"} {
			if _, err := sqllock.New(t.Context(), db, &sqllock.Options{Dialect: s.dialect, TablePrefix: prefix}); err == nil {
				t.Errorf("table prefix %q is accepted", prefix)
			}
			if _, err := sqllock.Schema(s.dialect, prefix); err == nil {
				t.Errorf("table prefix %q is accepted for a schema", prefix)
			}
		}
		for _, prefix := range []string{"", "By_Hand_2", strings.Repeat("x", 40), "select_"} {
			acquire(t, s.with("table_prefix="+prefix).open(t), "x")
		}
	})
}

// TestOpenURL: both packages open their stores by URL, and reject each other's schemes.
func TestOpenURL(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t)
		openRow := func(ctx context.Context, raw string) (driver.Store, error) { return sqllock.Open(ctx, raw, nil) }
		openSession := func(ctx context.Context, raw string) (driver.Store, error) { return sqlsession.Open(ctx, raw, nil) }
		for _, c := range []struct {
			parameter string
			open      func(context.Context, string) (driver.Store, error)
			says      string // of the error; empty if there is none
		}{
			{"", openRow, ""},
			{"scheme=row", openRow, ""},
			{"scheme=version", openRow, ""},
			{"scheme=session", openRow, "package sqlsession"},
			{"", openSession, ""},
			{"scheme=session", openSession, ""},
			{"scheme=forupdate", openSession, ""},
			{"scheme=row", openSession, "package sqllock"},
		} {
			store, err := c.open(within(t), s.with(c.parameter).url)
			if c.says != "" {
				if !errors.Is(err, sqllock.ErrURL) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%q: %v; want ErrURL that says %q", c.parameter, err, c.says)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%q: %v", c.parameter, err)
			}
			acquire(t, store, "opened by URL"+c.parameter)
			if err := store.Close(); err != nil {
				t.Errorf("%q: Close: %v", c.parameter, err)
			}
		}
	})
}
