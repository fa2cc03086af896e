package sqlurl

import (
	"strings"
	"testing"
)

func TestSQLiteDSN(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/locks.db": "file:/var/lib/locks.db",
		"locks.db":          "file:locks.db",
		"//host/share.db":   "file:/host/share.db", // no host
		"/a/../b.db":        "file:/b.db",
		"/50% & #1?.db":     "file:/50%25%20&%20%231%3F.db",
		"/ä.db":             "file:/%C3%A4.db",
	} {
		got, settings, _ := strings.Cut(SQLiteDSN(path), "?")
		if got != want {
			t.Errorf("SQLiteDSN(%q) is %q, want %q", path, got, want)
		}
		for _, setting := range []string{"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(", "_txlock=immediate"} {
			if !strings.Contains(settings, setting) {
				t.Errorf("SQLiteDSN(%q) does not set %s", path, setting)
			}
		}
	}
}
