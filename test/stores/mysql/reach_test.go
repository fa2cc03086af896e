package mysql

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCommandOnStoppedServer: a server that is stopped is reported within the limit that
// was given or five seconds.
func TestCommandOnStoppedServer(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.MariaDB)
	command.Run(t, server.URL(), "version") // builds it
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resume() }) // so that it can be stopped in order
	for _, c := range []struct {
		flag, says string
		limit      time.Duration
	}{
		{"--no-wait", "no answer within 5s", 9 * time.Second},
		{"--wait=1s", "no answer within 1s", 4 * time.Second},
	} {
		t.Run(c.flag, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out := command.Run(t, server.URL(), "exec", c.flag, "a", "--", "true")
			if took := time.Since(began); took > c.limit {
				t.Errorf("it took %v; want %v at most", took, c.limit)
			}
			if out.Status != 69 || !strings.Contains(out.Stderr, c.says) {
				t.Errorf("%+v; want 69 and %q", out, c.says)
			}
		})
	}
}
