package zookeeper

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCommandEndsInsideTheGrantedLease: the session's timeout grants less than --ttl asks for. A
// command that ignores TERM is killed all the same before another owner can have the lock.
func TestCommandEndsInsideTheGrantedLease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	p := proxy.Run(t, server.Addr())
	other := open(t, server.URL())
	h := command.Start(t, "zookeeper://"+p.Addr()+"?timeout=5s", "exec", "--ttl", "60s", "--grace", "20s", "x", "--",
		"sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done")
	p.Hang(true)
	p.Hold(proxy.Requests, proxy.Replies)
	granted(t, other, "x")
	if pid, err := strconv.Atoi(h.Line); err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("the command %q still runs, although another owner has the lock", h.Line)
	}
	if status := h.End(); status != 76 {
		t.Errorf("status %d; want 76: %s", status, h.Stderr.String())
	}
}
