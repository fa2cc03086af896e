package mysql

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// TestCommandRefusesWithoutTLS: a server that answers, and has no TLS, is not unreachable. A
// demo reports errors of its database in the same way.
func TestCommandRefusesWithoutTLS(t *testing.T) {
	t.Parallel()
	raw := servers.Run(t, servers.MariaDB).URL()
	sqlrig.CommandRefuses(t, map[string]command.Result{
		sqlrig.With(raw, "tls=true"): {Status: 78, Stderr: "does not support TLS"},
	})
	for bad, status := range map[string]int{sqlrig.As(t, raw, "dlock", sqlrig.Canary): 77, sqlrig.With(raw, "tls=true"): 78} {
		out := command.Run(t, "", "demo", "pause", "--db", bad)
		if out.Status != status || strings.Contains(out.Stderr, sqlrig.Canary) {
			t.Errorf("demo pause --db %s: %+v; want %d and no password", bad, out, status)
		}
	}
}
