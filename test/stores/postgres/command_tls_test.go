package postgres

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// TestCommandRefusesWithoutTLS: a server that answers, and has no TLS, is not unreachable.
func TestCommandRefusesWithoutTLS(t *testing.T) {
	t.Parallel()
	raw := servers.Run(t, servers.Postgres).URL()
	sqlrig.CommandRefuses(t, map[string]command.Result{
		strings.Replace(raw, "sslmode=disable", "sslmode=require", 1): {Status: 78, Stderr: "server refused TLS connection"},
	})
}
