package sqlsession_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock-go/dlock/drivertest"
)

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		db := s.open(t)
		drivertest.Run(t, drivertest.Config{
			TTL:      time.Second,
			Parallel: 3,
			Open:     s.openOwned,
			Worker: func() *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = s.env()
				return cmd
			},
			Leftovers: func(ctx context.Context) ([]string, error) { return s.leftovers(ctx, db) },
		})
	})
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
