package bundle

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/command"
)

const (
	// URLVariable has the URL of the store of a process that a test started.
	URLVariable = "DLOCK_TEST_STORE"
	// roleVariable makes a process do its role instead of running tests.
	roleVariable = "DLOCK_TEST_ROLE"
	agentRole    = "agent of faults"
)

// Tests are the tests of a package, for its TestMain.
type Tests struct {
	Open func(ctx context.Context, url string) (driver.Store, error)
	// Agent is faults.RunAgent.
	Agent func(open func(ctx context.Context) (driver.Store, error)) error
	// Roles are what other processes do that [Role] starts, with their arguments.
	Roles map[string]func(args []string) error
	// Parallel is how many tests run at the same time. They wait more than they compute. The default is Go's.
	Parallel int
	// End, if not nil, is called after all tests.
	End func() error
}

// Role returns a command that starts this test binary again, in one of Tests.Roles.
func Role(name string, args ...string) *exec.Cmd {
	cmd := child.Self(roleVariable + "=" + name)
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// Main runs the tests, or does what this process was started for, and exits.
func (p Tests) Main(m *testing.M) {
	open := func(ctx context.Context) (driver.Store, error) { return p.Open(ctx, os.Getenv(URLVariable)) }
	role := os.Getenv(roleVariable)
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case role == agentRole:
		exit(0, p.Agent(open))
	case p.Roles[role] != nil:
		exit(0, p.Roles[role](os.Args[1:]))
	}
	flag.Parse()
	if p.Parallel > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(p.Parallel)); err != nil {
			panic(err) // package testing has this flag
		}
	}
	status := m.Run()
	command.Remove()
	var err error
	if p.End != nil {
		err = p.End()
	}
	exit(status, err)
}

func exit(status int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}
