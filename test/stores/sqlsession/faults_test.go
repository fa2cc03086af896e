package sqlsession_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// TestFaults: faults of holders, waiters and their connections.
func TestFaults(t *testing.T) {
	eachFault(t, faults.Bound)
}

// TestPassing: a process hands a lock over again and again while its connection is killed.
// ForUpdate hands nothing over.
func TestPassing(t *testing.T) {
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			faults.RunEach(t, func(t testing.TB) bundle.Store { return d.among(t, sqlsession.Session).bundle(t) }, faults.HandOverBound)
		})
	}
}

// TestContention: 32 contenders in an empty database, and many for several names.
func TestContention(t *testing.T) {
	eachFault(t, faults.Contention)
}

// eachFault tries faults with every scheme on every server, each in a database of
// its own, to which connections are killed.
func eachFault(t *testing.T, list []faults.Fault) {
	t.Helper()
	for _, fault := range list {
		t.Run(fault.Name, func(t *testing.T) {
			each(t, func(t *testing.T, s setup) { faults.Run(t, s.bundle(t), []faults.Fault{fault}) })
		})
	}
}

// bundle is the store with what can be done to it.
func (s setup) bundle(t testing.TB) bundle.Store {
	t.Helper()
	admin := s.open(t)
	return bundle.Store{
		URL:       s.url(),
		Open:      openURL,
		TTL:       2 * time.Second,
		Leftovers: func(ctx context.Context) ([]string, error) { return s.leftovers(ctx, admin) },
		KillConnections: func(context.Context) error {
			s.killOthers(t, admin)
			return nil
		},
		Probe: 2 * time.Second, // once a second, and again if that fails
	}
}
