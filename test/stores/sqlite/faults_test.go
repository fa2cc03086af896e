package sqlite

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
)

func TestFaults(t *testing.T) {
	faults.Run(t, rig(t), slices.Concat(faults.Leases, faults.Fair))
	faults.RunEach(t, rig, faults.Contention)
}

func rig(t testing.TB) faults.Rig {
	t.Helper()
	path := tempFile(t)
	return faults.Rig{
		TTL:  2 * time.Second,
		Open: func(ctx context.Context) (driver.Store, error) { return openFile(ctx, path) },
		Command: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fileEnv+"="+path)
			return cmd
		},
	}
}
