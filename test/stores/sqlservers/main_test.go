// Package sqlservers tests sqllock on SQL servers: on MariaDB, and on PostgreSQL, also
// behind PgBouncer. MySQL itself is not tested: Debian does not have it.
//
// The databases are data: mariadb_test.go and postgres_test.go say how to start each
// server, and hold the tests that only make sense there. Every other test runs as
// TestX/mariadb and TestX/postgres.
package sqlservers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

var databases = []*database{mariadb, postgres}

// schemes are the schemes of package sqllock.
var schemes = []string{"row", "version"}

func TestMain(m *testing.M) {
	end := func() (err error) {
		for _, d := range databases {
			err = errors.Join(err, d.stop())
		}
		return err
	}
	bundle.Tests{Open: openSoon, Agent: faults.RunAgent, Parallel: 5, End: end}.Main(m)
}

// openURL opens the store of a target with that URL.
func openURL(ctx context.Context, url string) (driver.Store, error) { return targetOf(url).store(ctx) }

// openSoon is openURL for a process that is started in the middle of a fault.
func openSoon(ctx context.Context, url string) (driver.Store, error) {
	return targetOf(url).storeSoon(ctx)
}

func targetOf(url string) target {
	if strings.HasPrefix(url, "mysql://") {
		return target{mariadb, url}
	}
	return target{postgres, url}
}

// each runs a test on every database, several tests at the same time.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	t.Helper()
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// eachAlone runs a test on one database after the other, before the tests that run at the
// same time.
func eachAlone(t *testing.T, test func(t *testing.T, d *database)) {
	t.Helper()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) { test(t, d) })
	}
}

// eachSchemeAlone is eachAlone for one scheme after the other.
func eachSchemeAlone(t *testing.T, test func(t *testing.T, s target)) {
	t.Helper()
	eachAlone(t, func(t *testing.T, d *database) {
		for _, scheme := range schemes {
			t.Run(scheme, func(t *testing.T) { test(t, d.target(t, "scheme="+scheme)) })
		}
	})
}

// only runs a test on one database.
func only(t *testing.T, d *database, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	t.Run(d.kind.Name, test)
}

// eachScheme runs a test on every database, with both schemes at the same time.
func eachScheme(t *testing.T, test func(t *testing.T, s target)) {
	t.Helper()
	each(t, func(t *testing.T, d *database) { d.eachScheme(t, test) })
}

// onRow runs a test on every database with one scheme: for what does not depend on how a
// lock is taken.
func onRow(t *testing.T, test func(t *testing.T, s target)) {
	t.Helper()
	each(t, func(t *testing.T, d *database) {
		t.Run("row", func(t *testing.T) { test(t, d.target(t, "scheme=row")) })
	})
}

// eachScheme runs a test with both schemes at the same time, and returns when both have
// ended. Each store is in a database of its own, on the server that all tests share.
func (d *database) eachScheme(t *testing.T, test func(t *testing.T, s target)) {
	t.Helper()
	var both sync.WaitGroup
	for _, scheme := range schemes {
		both.Go(func() {
			t.Run(scheme, func(t *testing.T) { test(t, d.target(t, "scheme="+scheme)) })
		})
	}
	both.Wait()
}
