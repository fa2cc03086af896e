package sqlite

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/faults"
)

// roleEnv makes a process do one of the roles instead of running tests.
const roleEnv = "DLOCK_TEST_SQLITE_ROLE"

// roles are what other processes do, with the arguments they were given.
var roles = map[string]func(args []string) error{
	"agent":   agent,
	"contend": contend,
	"busy":    busy,
	"crowd":   crowd,
	"once":    readOnlyOnce,
}

func TestMain(m *testing.M) {
	open := func(ctx context.Context) (driver.Store, error) { return openFile(ctx, os.Getenv(fileEnv)) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(open))
	}
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		if err := role(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
