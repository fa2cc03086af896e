package redis

import (
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedlockFaults runs before the parallel tests: ten servers and what asks them,
// each within a limit, are enough at a time.
func TestRedlockFaults(t *testing.T) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { faults.RunEach(t, onRedlock, faults.Quorum) })
	both.Go(func() { faults.Run(t, onRedlock(t), faults.Leases) })
}

// onRedlock makes rigs with five servers, each behind a proxy.
func onRedlock(t testing.TB) faults.Rig {
	t.Helper()
	group := servers.RunGroup(t, 5, servers.Redis, inMemory...)
	members := make([]faults.Member, len(group))
	addrs := make([]string, len(group))
	for i, server := range group {
		link := proxy.Run(t, server.Addr())
		addrs[i] = link.Addr()
		members[i] = faults.Member{
			Rig:          rig("redis://" + server.Addr() + "/0?protocol=plain"),
			Link:         link,
			Kill:         server.Kill,
			RestartEmpty: server.RestartEmpty,
		}
	}
	r := rig("redlock://" + strings.Join(addrs, ","))
	r.TTL = max(r.TTL, 5*memberTimeout) // which leaves room for a member that does not answer
	r.Members = members
	return r
}
