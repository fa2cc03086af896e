package sqlsession_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/drivertest"
)

// TestConformance runs one scheme after the other, before the tests that run at the same time:
// the kit keeps a server busy enough.
func TestConformance(t *testing.T) {
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			for _, scheme := range schemes {
				t.Run(scheme.String(), func(t *testing.T) { d.among(t, scheme).conform(t) })
			}
		})
	}
}

// conform runs the conformance kit.
func (s setup) conform(t *testing.T) {
	t.Helper()
	s.bundle(t).Conform(t, drivertest.Config{TTL: time.Second, Parallel: 3})
}

// leftovers returns the connections or locks that a test left behind.
func (s setup) leftovers(ctx context.Context, db *sql.DB) ([]string, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var n int
	if err := conn.QueryRowContext(ctx, s.holding).Scan(&n); err != nil || n == 0 {
		return nil, err
	}
	return []string{fmt.Sprintf("%d locks or connections that may have some", n)}, nil
}
