package zookeeper

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestGrantAfterSilenceEndsBeforeSession: a process that has sent nothing for a while acquires a lock
// over a follower, which stops before it reports that to the leader. The leader counts the session's
// timeout from before the silence, and the grant promises no more than what is left of it.
func TestGrantAfterSilenceEndsBeforeSession(t *testing.T) {
	t.Parallel()
	const timeout = 12 * time.Second
	ensemble := servers.RunEnsemble(t)
	leader, err := ensemble.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower := ensemble.Members[0]
	if follower == leader {
		follower = ensemble.Members[1]
	}
	store, p := throughProxy(t, follower, "?timeout="+timeout.String())
	other := open(t, leader.URL())
	happens(t, p.OnRequest(sends(opPing, ""), nil), "a ping")
	const pause = timeout / 3 // between two pings
	pinged := time.Now()
	eventually(t, "the next ping is close", func() bool { return time.Since(pinged) > pause-pause/10 })

	asked := time.Now()
	grant := acquire(t, store, request("n"))
	if err := follower.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := follower.Resume(); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "another owner is granted the lock", func() bool {
		_, err := other.Acquire(t.Context(), request("n"))
		return err == nil
	})
	if held := time.Since(asked); held < grant.TTL {
		t.Errorf("another owner was granted the lock after %v, although the grant promised it for %v", held, grant.TTL)
	}
}
