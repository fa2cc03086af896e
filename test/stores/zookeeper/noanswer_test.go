package zookeeper

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.ZooKeeper).Addr())
	store := open(t, "zookeeper://"+p.Addr())
	grant := acquire(t, store, request("held"))
	p.Hold()
	t.Cleanup(p.Deliver) // so that Close reaches the server
	faults.NoAnswer(t, store, grant, request("abandoned"), "no answer")
}
