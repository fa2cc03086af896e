package sqlite

import (
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
)

func TestFaults(t *testing.T) {
	faults.Run(t, inFile(t), slices.Concat(faults.Leases, faults.Fair))
	faults.RunEach(t, inFile, faults.Contention)
}

func inFile(t testing.TB) bundle.Store {
	t.Helper()
	return bundle.Store{URL: tempFile(t), Open: openFile, TTL: 2 * time.Second}
}
