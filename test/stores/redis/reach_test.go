package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestCommandOnStoppedServer: a server that is stopped, and one without TLS that is
// asked for it, are reported within the limit that was given or five seconds.
func TestCommandOnStoppedServer(t *testing.T) {
	t.Parallel()
	stopped := servers.Run(t, servers.Redis, inMemory...)
	plain := servers.Run(t, servers.Redis, inMemory...)
	if err := stopped.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stopped.Resume() }) // so that it can be stopped in order
	for what, url := range map[string]string{"stopped": stopped.URL(), "no TLS": "rediss://" + plain.Addr()} {
		for _, c := range []struct {
			flags []string
			says  string
			limit time.Duration
		}{
			{[]string{"-n"}, "no answer within 5s", 9 * time.Second},
			{[]string{"-w", "1s"}, "no answer within 1s", 4 * time.Second},
		} {
			t.Run(what+" "+c.flags[0], func(t *testing.T) {
				t.Parallel()
				command.Run(t, url, "version") // builds it
				began := time.Now()
				out := command.Run(t, url, append(append([]string{"exec"}, c.flags...), "a", "--", "true")...)
				if took := time.Since(began); took > c.limit {
					t.Errorf("it took %v; want %v at most", took, c.limit)
				}
				if out.Status != 69 || !strings.Contains(out.Stderr, c.says) {
					t.Errorf("%+v; want 69 and %q", out, c.says)
				}
			})
		}
	}
}

// TestCommandSaysWhatIsWrong: a refused user and a server that cannot keep locks are
// not called unreachable.
func TestCommandSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	locked := servers.Run(t, servers.Redis, inMemory...)
	admin := redis.NewClient(&redis.Options{Addr: locked.Addr()})
	defer admin.Close()
	for _, order := range [][]any{
		{"ACL", "SETUSER", "little", "on", ">secret", "~*", "&*", "+@read", "+@connection"},
		{"CONFIG", "SET", "requirepass", "secret"},
	} {
		if err := admin.Do(t.Context(), order...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	full := servers.Run(t, servers.Redis, append([]string{"--maxmemory", "1", "--maxmemory-policy", "noeviction"}, inMemory...)...)
	for url, want := range map[string]command.Result{
		locked.URL():                             {Status: 77, Stderr: "the server wants a password"},
		"redis://:canary7bird@" + locked.Addr():  {Status: 77, Stderr: "wrong user or password"},
		"redis://little:secret@" + locked.Addr(): {Status: 77, Stderr: "the user lacks a permission"},
		"redis://" + full.Addr() + "/99":         {Status: 78, Stderr: "there is no such database"},
		full.URL():                               {Status: 78, Stderr: "the server is out of memory"},
	} {
		out := command.Run(t, url, "exec", "-w", "5s", "a", "--", "true")
		if out.Status != want.Status || !strings.Contains(out.Stderr, want.Stderr) || strings.Contains(out.Stderr, "unreachable") ||
			!strings.Contains(out.Stderr, "cannot use redis://") || strings.Count(out.Stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q; want %d and one line that says %q", url, out.Status, out.Stderr, want.Status, want.Stderr)
		}
	}
}
