package sqlsession_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestMain(m *testing.M) {
	end := func() (err error) {
		for i := range databases {
			err = errors.Join(err, databases[i].shared.stop())
		}
		return err
	}
	bundle.Tests{Open: openURL, Agent: faults.RunAgent, Parallel: 8, End: end}.Main(m)
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
