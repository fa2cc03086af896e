package redis

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestCommand runs the command line on every kind of store URL.
func TestCommand(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...string) topology{
		"single": single, "sentinel": sentinel, "cluster": cluster, "TLS": secure, "redlock": independent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).url
			if name == "redlock" {
				url += "?member_timeout=" + memberTimeout.String()
			}
			if out := command.Run(t, url, "exec", "job", "--", "sh", "-c", "exit 7"); out.Status != 7 || out.Stderr != "" {
				t.Errorf("exec of a command that exits with 7: %+v", out)
			}
			holder := command.Hold(t, url, "job {1}")
			token := holder.Line
			if out := command.Run(t, url, "exec", "-n", "job {1}", "--", "true"); out.Status != 75 || !strings.Contains(out.Stderr, "held by") {
				t.Errorf("exec -n of a held lock: %+v; want 75 and the holder", out)
			}
			if out := command.Run(t, url, "ls", "--json", "job"); out.Status != 0 || !strings.Contains(out.Stdout, `"token":`+token) {
				t.Errorf("ls --json: %+v; want token %s", out, token)
			}
			if out := command.Run(t, url, "show", "job {1}"); out.Status != 0 || !strings.Contains(out.Stdout, token) {
				t.Errorf("show: %+v; want token %s", out, token)
			}
			if out := command.Run(t, url, "break", "job {1}", "--token", "1"); out.Status == 0 {
				t.Errorf("break with another token: %+v; want a failure", out)
			}
			began := time.Now()
			if out := command.Run(t, url, "break", "job {1}", "--token", token); out.Status != 0 {
				t.Errorf("break: %+v", out)
			}
			if out := command.Run(t, url, "exec", "-w", "10s", "job {1}", "--", "true"); out.Status != 0 {
				t.Errorf("exec after break: %+v", out)
			}
			t.Logf("free %v after it was broken", time.Since(began).Round(time.Millisecond))
			holder.End() // it may have noticed the loss
			if out := command.Run(t, url, "doctor", "--json"); !strings.Contains(out.Stdout, `"fencing":"clock-bound"`) || out.Status > 1 {
				t.Errorf("doctor: %+v", out)
			}
		})
	}
}

// TestDoctorReportsBrokenPromisesFirst: the promises that the configuration breaks come first.
func TestDoctorReportsBrokenPromisesFirst(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"no":  "Restart: a crash of the store can forget locks, and two may then hold one (see persistence below).",
		"yes": "Restart: locks and tokens survive a crash of the store.",
	} {
		server := servers.Run(t, servers.Redis, "--appendonly", args, "--appendfsync", "always")
		out := command.Run(t, server.URL(), "doctor")
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("with appendonly %s doctor does not say %q:\n%s", args, want, out.Stdout)
		}
		_, promises, _ := strings.Cut(out.Stdout, "configured\n")
		if first, _, _ := strings.Cut(strings.TrimSpace(promises), "\n"); args == "no" && first != want {
			t.Errorf("the first promise is %q; want %q", first, want)
		}
	}
}

func TestCommandWithBadInput(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	at := server.Addr()
	for url, want := range map[string]command.Result{
		"redis://":                                {Status: 64, Stderr: "host is missing"},
		"redis://" + at + "?protocol=xyz":         {Status: 64, Stderr: "not redisson or plain"},
		"redis://ann:canary7bird@" + at:           {Status: 77, Stderr: "wrong user or password"},
		"redis://127.0.0.1:1":                     {Status: 69, Stderr: "connection refused"},
		"rediss://" + at:                          {Status: 78, Stderr: "without TLS"},
		"redis+sentinel://" + at:                  {Status: 64, Stderr: "name of the master"},
		"redis+sentinel://" + at + "/dlock":       {Status: 78, Stderr: "not a Sentinel"},
		"redis+cluster://" + at + "/1":            {Status: 64, Stderr: "no path"},
		"redlock://" + at + "," + at:              {Status: 64, Stderr: "tolerate no failure"},
		"redlock://a:1,b:2,c:3,d:4":               {Status: 64, Stderr: "leave one out"},
		"redlock://a,b,c?protocol=redisson":       {Status: 64, Stderr: "plain protocol only"},
		"redlock://a,b,c?member_timeout=soon":     {Status: 64, Stderr: "not a duration"},
		"redlock://" + at + "," + at + "," + at:   {Status: 78, Stderr: "same server"},
		"redlock://127.0.0.1:1,127.0.0.1:2," + at: {Status: 69, Stderr: "2 of 3"},
	} {
		out := command.Run(t, url, "exec", "-w", "2s", "a", "--", "true")
		if out.Status != want.Status || !strings.Contains(out.Stderr, want.Stderr) {
			t.Errorf("%s: status %d, %q; want %d and %q", url, out.Status, out.Stderr, want.Status, want.Stderr)
		}
		if strings.Contains(out.Stderr, "canary7bird") {
			t.Errorf("%s: the password is shown: %s", url, out.Stderr)
		}
	}
}

// TestNestedCommandDoesNotWaitForItself: a dlock inside a dlock that holds the lock does not wait
// for it, however each of them spells the store's URL.
func TestNestedCommandDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(servers.Run(t, servers.Redis, inMemory...).Addr())
	must(t, err)
	for _, protocol := range protocols {
		outer := "redis://127.0.0.1:" + port + "?protocol=" + protocol
		inner := "redis://localhost:" + port + "?protocol=" + protocol
		out := command.Run(t, outer, "exec", "job", "--", "dlock", "exec", "--store", inner, "-w", "10s", "job", "--", "echo", "no")
		if out.Status != 75 || !strings.Contains(out.Stderr, "wait for itself") || out.Stdout != "" {
			t.Errorf("%s: the inner dlock: %+v; want that it notices that it would wait for itself", protocol, out)
		}
		// The inner dlock uses the outer one's --store.
		out = command.Run(t, "sqlite:///no/such/folder/x.db", "exec", "--store", outer, "job", "--", "dlock", "show", "job")
		if out.Status != 0 || !strings.Contains(out.Stdout, "token") {
			t.Errorf("%s: the inner dlock does not use the store of the outer one: %+v", protocol, out)
		}
	}
}

// TestCommandOnStoppedServer: a stopped server, and a server without TLS behind a URL with TLS, are
// reported within the given limit or five seconds.
func TestCommandOnStoppedServer(t *testing.T) {
	t.Parallel()
	stopped := servers.Run(t, servers.Redis, inMemory...)
	plain := servers.Run(t, servers.Redis, inMemory...)
	must(t, stopped.Pause())
	t.Cleanup(func() { _ = stopped.Resume() }) // so that the server can shut down
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
				command.Run(t, url, "version") // builds the command
				began := time.Now()
				out := command.Run(t, url, append(append([]string{"exec"}, c.flags...), "a", "--", "true")...)
				if took := time.Since(began); took > c.limit {
					t.Errorf("it took %v; want %v at most", took, c.limit)
				}
				status, says := 69, c.says
				if what == "no TLS" {
					status, says = 78, "without TLS"
				}
				if out.Status != status || !strings.Contains(out.Stderr, says) {
					t.Errorf("%+v; want %d and %q", out, status, says)
				}
			})
		}
	}
}

// TestCommandSaysWhyTheServerRefuses: a refused user and a server that cannot keep locks are not
// reported as unreachable.
func TestCommandSaysWhyTheServerRefuses(t *testing.T) {
	t.Parallel()
	locked := servers.Run(t, servers.Redis, inMemory...)
	admin := redis.NewClient(&redis.Options{Addr: locked.Addr()})
	defer admin.Close()
	for _, order := range [][]any{
		{"ACL", "SETUSER", "little", "on", ">secret", "~*", "&*", "+@read", "+@connection"},
		{"CONFIG", "SET", "requirepass", "secret"},
	} {
		must(t, admin.Do(t.Context(), order...).Err())
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

// TestCommandReportsALossAtOnce: when the server stops answering, hold and exec report the
// loss of the lock and end within a second or so, and do not wait for a release that cannot
// succeed: by then another process may have the lock.
func TestCommandReportsALossAtOnce(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, args := range map[string][]string{
		"hold": {"hold", "--ttl", "3", "x"},
		"exec": {"exec", "--ttl", "3", "x", "--", "sh", "-c", "echo running; exec sleep 60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Redis, inMemory...)
			cmd := command.New(t, server.URL(), args...)
			if _, err := cmd.StdinPipe(); err != nil { // hold ends when stdin is closed
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			must(t, err)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			must(t, cmd.Start())
			if _, err := stdout.Read(make([]byte, 100)); err != nil { // it has the lock
				t.Fatal(err)
			}
			must(t, server.Pause())
			paused := time.Now()
			_ = cmd.Wait() // the exit status is checked below
			if took := time.Since(paused); cmd.ProcessState.ExitCode() != 76 || took > ttl+3*time.Second {
				t.Errorf("it ended with %d after %v; want 76 soon after %v: %s", cmd.ProcessState.ExitCode(), took, ttl, stderr.String())
			}
			if text := stderr.String(); !strings.Contains(text, "lost x") || !strings.Contains(text, "not renewed in time: the last renewal failed: ") {
				t.Errorf("it said %q; want that the lock was lost, and why", text)
			}
		})
	}
}
