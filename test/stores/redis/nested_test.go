package redis

import (
	"net"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestNestedCommand: a dlock inside of a dlock that holds the lock must not wait for it,
// however each of them spells the store.
func TestNestedCommand(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(servers.Run(t, servers.Redis).Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"redisson", "plain"} {
		outer := "redis://127.0.0.1:" + port + "?protocol=" + protocol
		inner := "redis://localhost:" + port + "?protocol=" + protocol
		out := command.Run(t, outer, "exec", "job", "--", "dlock", "exec", "--store", inner, "-w", "10s", "job", "--", "echo", "no")
		if out.Status != 75 || !strings.Contains(out.Stderr, "wait for itself") || out.Stdout != "" {
			t.Errorf("%s: the inner dlock: %+v; want that it notices that it would wait for itself", protocol, out)
		}
		// What was given with --store is handed on.
		out = command.Run(t, "sqlite:///no/such/folder/x.db", "exec", "--store", outer, "job", "--", "dlock", "show", "job")
		if out.Status != 0 || !strings.Contains(out.Stdout, "token") {
			t.Errorf("%s: the inner dlock does not use the store of the outer one: %+v", protocol, out)
		}
	}
}
