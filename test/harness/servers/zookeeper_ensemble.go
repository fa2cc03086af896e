package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

const ensembleSize = 3

// Ensemble is ZooKeeperReaping on three servers, of which any two are enough.
type Ensemble struct{ Members Group }

// RunEnsemble starts an Ensemble for a test, and stops it when the test ends.
func RunEnsemble(t testing.TB) *Ensemble {
	t.Helper()
	e, err := StartEnsemble()
	if err != nil {
		t.Fatal(err)
	}
	e.Members.stopAfter(t)
	return e
}

// StartEnsemble starts an Ensemble and waits until it serves clients.
func StartEnsemble() (*Ensemble, error) {
	var list strings.Builder // of the members, the same for all
	for i := range ensembleSize {
		quorum, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		election, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&list, "server.%d=127.0.0.1:%d:%d\n", i+1, quorum, election)
	}
	members, err := startEach(ensembleSize, func(i int) (*Server, error) {
		return Start(ensembleMember(i+1, list.String()))
	})
	if err != nil {
		return nil, err
	}
	return &Ensemble{members}, nil
}

// ensembleMember is the server with that ID. It answers when there is a quorum.
func ensembleMember(id int, list string) *Kind {
	kind := *ZooKeeperReaping
	kind.Configure = func(in Instance) error {
		if err := writeOwned(filepath.Join(in.Data, "myid"), fmt.Sprintln(id)); err != nil {
			return err
		}
		// With syncLimit=10, members notice within a second that another member
		// does not answer.
		return configureZooKeeper(in, "initLimit=100\nsyncLimit=10\n"+list)
	}
	return &kind
}

// URL returns a URL with the addresses of all members.
func (e *Ensemble) URL() string { return ZooKeeper.URL(e.Members.list()) }

// Leader waits for a leader and returns it.
func (e *Ensemble) Leader(ctx context.Context) (leader *Server, err error) {
	err = until(ctx, "a member leads", func(ctx context.Context) error {
		for _, s := range e.Members.running() {
			limited, cancel := context.WithTimeout(ctx, wire.Timeout)
			answer, err := fourLetters(limited, s.Addr(), "srvr")
			cancel()
			if err == nil && strings.Contains(answer, "Mode: leader") {
				leader = s
				return nil
			}
		}
		return errors.New("no member leads")
	})
	return leader, err
}

// Stop stops all members.
func (e *Ensemble) Stop() error { return e.Members.Stop() }
