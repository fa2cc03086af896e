package sqlbound

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/faults"
)

// What other processes need to know to open the same store.
const (
	kindEnv   = "DLOCK_TEST_BOUND_KIND"
	addrEnv   = "DLOCK_TEST_BOUND_ADDR"
	schemeEnv = "DLOCK_TEST_BOUND_SCHEME"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(openFromEnv))
	case os.Getenv(faults.PuppetEnv) != "":
		os.Exit(faults.Play(openFromEnv))
	}
	os.Exit(m.Run())
}
