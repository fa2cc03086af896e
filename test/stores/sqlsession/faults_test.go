package sqlsession_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock-go/dlock/sqlsession"
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
			faults.RunEach(t, func(t testing.TB) faults.Rig { return d.among(t, sqlsession.Session).rig(t) }, faults.HandOverBound)
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
			each(t, func(t *testing.T, s setup) { fault.Try(t, s.rig(t)) })
		})
	}
}

// rig is the store with what can be done to it.
func (s setup) rig(t testing.TB) faults.Rig {
	t.Helper()
	admin := s.open(t)
	return faults.Rig{
		TTL:  2 * time.Second,
		Open: s.openOwned,
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = s.env()
			return cmd
		},
		KillConnections: func(context.Context) error {
			s.killOthers(t, admin)
			return nil
		},
		Probe: 2 * time.Second, // once a second, and again if that fails
	}
}
