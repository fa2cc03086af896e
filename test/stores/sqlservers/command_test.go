package sqlservers

import (
	"maps"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
)

func TestCommand(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, scheme := range []string{"row", "version", "forupdate", "session"} {
			t.Run(scheme, func(t *testing.T) {
				t.Parallel()
				runCommand(t, d.target(t, "scheme="+scheme))
			})
		}
		t.Run("socket, IPv6, and a password of odd characters", func(t *testing.T) {
			t.Parallel()
			const password = `p@ss:/?#[]&= %ü"`
			server := d.passwordServer(t, d.everywhere...)
			s := target{d, server.URL()}
			run(t, s.admin(t), d.createUser("odd", password), d.grantAll(s.name(), "odd"))
			_, port, _ := strings.Cut(server.Addr(), ":")
			s = s.as("odd", password).at("[::1]:" + port)
			runCommand(t, s)
			runCommand(t, target{d, d.socket(s, server, port)})
		})
	})
}

// runCommand runs the command line with a store.
func runCommand(t *testing.T, s target) {
	t.Helper()
	if out := command.Run(t, s.url, "exec", "job", "--", "sh", "-c", "exit 7"); out.Status != 7 || out.Stderr != "" {
		t.Errorf("exec of a command that exits with 7: %+v", out)
	}
	holder := command.Hold(t, s.url, "job {1}")
	want := func(status int, stdout, stderr string, args ...string) {
		t.Helper()
		out := command.Run(t, s.url, args...)
		if out.Status != status || !strings.Contains(out.Stdout, stdout) || !strings.Contains(out.Stderr, stderr) {
			t.Errorf("%q: %+v; want %d, %q and %q", args, out, status, stdout, stderr)
		}
	}
	want(75, "", "", "exec", "-n", "job {1}", "--", "true")
	if out := command.Run(t, s.url, "doctor", "--json"); !strings.Contains(out.Stdout, `"store":"`+s.dialect.String()) || out.Status > 1 {
		t.Errorf("doctor: %+v", out)
	}
	if scheme := s.scheme(); scheme == "forupdate" || scheme == "session" {
		want(64, "", "cannot be listed", "ls")
		if status := holder.End(); status != 0 {
			t.Errorf("the holder ends with %d", status)
		}
		return
	}
	want(0, `"token":`+holder.Line, "", "ls", "--json", "job")
	want(0, "", "", "break", "job {1}", "--token", holder.Line)
	want(0, "", "", "exec", "-n", "job {1}", "--", "true")
	holder.End() // it may have noticed the loss, or not
}

// canary is a password that must never be shown.
const canary = "Canary7birdSings"

func TestCommandWithBadInput(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t)
		admin, little := s.admin(t), s.as("little", canary)
		run(t, admin, d.createUser("little", canary), d.grant("SELECT", s.name(), "little"))
		u, _, _ := strings.Cut(s.url, "://")
		u += "://u:" + canary
		bad := map[string]command.Result{
			s.with("scheme=xyz").url:          {Status: 64, Stderr: "row, version, forupdate or session"},
			s.with("table_prefix=a-b").url:    {Status: 64, Stderr: "letters, digits and _"},
			u + "@127.0.0.1:1/x":              {Status: 69, Stderr: "connection refused"},
			u + "@nosuch.invalid/x":           {Status: 69, Stderr: "nosuch.invalid"},
			s.missing().url:                   {Status: 78, Stderr: "there is no such database"},
			little.url:                        {Status: 77, Stderr: d.denied},
			little.with("scheme=session").url: {Status: 77, Stderr: d.denied},
		}
		maps.Copy(bad, d.rejected(s))
		commandRejects(t, bad)
	})
}

// commandRejects runs the command line with store URLs that cannot be used.
func commandRejects(t *testing.T, bad map[string]command.Result) {
	t.Helper()
	for raw, want := range bad {
		for _, args := range [][]string{{"exec", "-w", "2s", "a", "--", "true"}, {"doctor", "--json"}} {
			out := command.Run(t, raw, args...)
			if out.Status != want.Status || !strings.Contains(out.Stderr, want.Stderr) {
				t.Errorf("%s: status %d, %q; want %d and %q", raw, out.Status, out.Stderr, want.Status, want.Stderr)
			}
			if out.Status != 64 && (!strings.Contains(out.Stderr, ": cannot use ") || strings.Count(out.Stderr, "\n") != 1) {
				t.Errorf("%s: want one line that names the store: %s", raw, out.Stderr)
			}
			if out.Status != 69 && strings.Contains(out.Stderr, "unreachable") {
				t.Errorf("%s: the store is reachable: %s", raw, out.Stderr)
			}
			if strings.Contains(out.Stderr+out.Stdout, canary) {
				t.Errorf("%s: the password is shown: %s%s", raw, out.Stderr, out.Stdout)
			}
		}
	}
}
