package sqlrig

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// OpenURL shows that both packages open their stores by URL and refuse each other's schemes.
func (d *Database) OpenURL(t *testing.T) {
	raw := d.URL(t)
	openRow := func(ctx context.Context, raw string) (driver.Store, error) { return sqllock.Open(ctx, raw, nil) }
	openSession := func(ctx context.Context, raw string) (driver.Store, error) { return sqlsession.Open(ctx, raw, nil) }
	for _, c := range []struct {
		scheme string
		open   func(context.Context, string) (driver.Store, error)
		says   string // of the error; empty if there is none
	}{
		{"", openRow, ""},
		{"row", openRow, ""},
		{"version", openRow, ""},
		{"session", openRow, "package sqlsession"},
		{"", openSession, ""},
		{"session", openSession, ""},
		{"forupdate", openSession, ""},
		{"row", openSession, "package sqllock"},
	} {
		with := raw
		if c.scheme != "" {
			with = With(raw, "scheme="+c.scheme)
		}
		store, err := c.open(Within(t), with)
		if c.says != "" {
			if !errors.Is(err, sqllock.ErrURL) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("scheme %q: %v; want ErrURL that says %q", c.scheme, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Fatalf("scheme %q: %v", c.scheme, err)
		}
		if _, err := store.Acquire(Within(t), Request("opened by URL"+c.scheme)); err != nil {
			t.Errorf("scheme %q: %v", c.scheme, err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("scheme %q: Close: %v", c.scheme, err)
		}
	}
}
