package sqlsession_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// What other processes need to know to open the same store.
const (
	kindEnv   = "DLOCK_TEST_SQLSESSION_KIND"
	dsnEnv    = "DLOCK_TEST_SQLSESSION_DSN"
	schemeEnv = "DLOCK_TEST_SQLSESSION_SCHEME"
)

// atOnce is how many tests run at the same time. They wait more than they compute.
const atOnce = "8"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(openFromEnv))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(openFromEnv))
	}
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status = m.Run()
	for i := range databases {
		if err := databases[i].shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	return status
}

// sharedServer is one that is started by the first test that needs it, for all
// that leave each other alone when each has a database of its own.
type sharedServer struct {
	once   sync.Once
	server *servers.Server
	err    error
	count  atomic.Int64 // of databases
}

func (s *sharedServer) start(kind *servers.Kind, args ...string) (*servers.Server, error) {
	s.once.Do(func() { s.server, s.err = servers.Start(kind, args...) })
	return s.server, s.err
}

func (s *sharedServer) stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}
