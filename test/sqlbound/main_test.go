package sqlbound

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
)

// What other processes need to know to open the same store.
const (
	kindEnv   = "DLOCK_TEST_BOUND_KIND"
	addrEnv   = "DLOCK_TEST_BOUND_ADDR"
	schemeEnv = "DLOCK_TEST_BOUND_SCHEME"
)

func TestMain(m *testing.M) {
	if os.Getenv(drivertest.WorkEnv) != "" {
		os.Exit(drivertest.Work(openFromEnv))
	}
	os.Exit(m.Run())
}
