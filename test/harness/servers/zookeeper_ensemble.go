package servers

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

const ensembleSize = 3

// syncLimit is after how many ticks a member notices that another one does not answer: a second.
const syncLimit = 10

// Ensemble is ZooKeeperReaping on three servers, of which any two are enough.
type Ensemble struct{ Members Group }

// RunEnsemble starts an Ensemble for a test, and stops it when the test ends.
func RunEnsemble(t testing.TB) *Ensemble {
	t.Helper()
	return keep(StartEnsemble())(t)
}

// RunSplitEnsemble is RunEnsemble with another syncLimit. peer maps the address at which a member
// listens, if it leads, to the address that the member with an index uses for it.
func RunSplitEnsemble(t testing.TB, syncLimit int, peer func(follower int, addr string) string) *Ensemble {
	t.Helper()
	return keep(startEnsemble(syncLimit, peer))(t)
}

// StartEnsemble starts an Ensemble and waits until it serves clients.
func StartEnsemble() (*Ensemble, error) {
	return startEnsemble(syncLimit, func(_ int, addr string) string { return addr })
}

func startEnsemble(syncLimit int, peer func(follower int, addr string) string) (*Ensemble, error) {
	var lists [ensembleSize]strings.Builder // of the members
	for i := range ensembleSize {
		quorum, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		election, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		for j := range lists {
			addr := fmt.Sprintf("127.0.0.1:%d", quorum)
			if i != j {
				addr = peer(j, addr)
			}
			fmt.Fprintf(&lists[j], "server.%d=%s:%d\n", i+1, addr, election)
		}
	}
	members, err := startEach(ensembleSize, func(i int) (*Server, error) {
		return Start(ensembleMember(i+1, syncLimit, lists[i].String()))
	})
	if err != nil {
		return nil, err
	}
	return &Ensemble{members}, nil
}

// ensembleMember is the server with that ID. It answers when there is a quorum.
func ensembleMember(id, syncLimit int, list string) *Kind {
	kind := *ZooKeeperReaping
	kind.Configure = func(in Instance) error {
		if err := writeOwned(filepath.Join(in.Data, "myid"), fmt.Sprintln(id)); err != nil {
			return err
		}
		return configureZooKeeper(in, fmt.Sprintf("initLimit=100\nsyncLimit=%d\n%s", syncLimit, list))
	}
	return &kind
}

// URL returns a URL with the addresses of all members.
func (e *Ensemble) URL() string { return ZooKeeper.URL(e.Members.list()) }

// Leader waits for a leader and returns it.
func (e *Ensemble) Leader(ctx context.Context) (*Server, error) {
	return e.Members.awaitLeader(ctx, func(ctx context.Context, addr string) bool {
		ctx, cancel := context.WithTimeout(ctx, wire.Timeout)
		defer cancel()
		answer, err := fourLetters(ctx, addr, "srvr")
		return err == nil && strings.Contains(answer, "Mode: leader")
	})
}

// Stop stops all members.
func (e *Ensemble) Stop() error { return e.Members.Stop() }

func (e *Ensemble) all() Group { return e.Members }
