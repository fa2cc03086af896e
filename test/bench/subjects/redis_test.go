package subjects

import (
	"context"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Without this, the difference between bare and dlock would not be the overhead
// of the library.
func TestBareSendsTheCommandsOfTheLibrary(t *testing.T) {
	servers, err := serveRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := servers.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for bare, library := range map[string]string{"bare": "dlock", "bare/plain": "dlock/plain"} {
		want, got := sentBy(t, servers, library), sentBy(t, servers, bare)
		if len(want) < 7 { // the minimum of both protocols
			t.Fatalf("%s sent only %q", library, want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s and %s do not execute the same commands:\n%s\n\n%s", bare, library, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// changing matches owners and tokens, the host's part of a holder, and the time
// and connection of a command.
var changing = regexp.MustCompile(`[0-9a-f]{32}|1[0-9]{15}|^\S+ \[0 (127\.\S+|lua)\]`)

// sentBy returns the commands that a server executes for the third pair of a
// subject. The first pairs load the scripts.
func sentBy(t *testing.T, s *Servers, name string) (commands []string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Empty(t.Context()))
	at := NewPlace(t.TempDir(), s)
	i := slices.IndexFunc(redisStore.Subjects, func(s Subject) bool { return s.Name == name })
	client, err := redisStore.Subjects[i].Open(t.Context(), at)
	must(err)
	defer func() { must(client.Close()) }()
	w, err := client.Worker(t.Context(), Want{Name: "bench/same"})
	must(err)
	pair := func() {
		must(w.Lock(t.Context()))
		must(w.Unlock(t.Context()))
	}
	pair()
	pair()
	<-time.After(time.Millisecond) // on a quick machine the tokens are ahead of the clock, and the counter is written twice

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan struct{})
	stop, err := monitor(ctx, at.Addrs[0], func(line string) bool {
		if strings.Contains(line, "the-end") {
			close(ended)
			return false
		}
		commands = append(commands, changing.ReplaceAllString(strings.TrimPrefix(line, "+"), "_"))
		return true
	})
	must(err)
	pair()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.Addrs[0])
	must(err)
	defer conn.Close()
	_, err = conn.Write([]byte("ECHO the-end\r\n"))
	must(err)
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the server does not show the last command")
	}
	must(stop())
	return commands
}

func TestCommandsOfScriptsAreSeparated(t *testing.T) {
	asked, all := make(map[string]float64), make(map[string]float64)
	addCommand(`+1339518083.107412 [0 127.0.0.1:60866] "SET" "lua]" "1"`, asked, all)
	addCommand(`+1339518083.107413 [0 lua] "set" "a" "1"`, asked, all)
	if asked["set"] != 1 || all["set"] != 2 {
		t.Errorf("%v of %v were sent by clients, want 1 of 2", asked["set"], all["set"])
	}
	calls := make(map[string]uint64)
	err := addCalls(calls, "# Commandstats\r\ncmdstat_config|resetstat:calls=1,usec=129\r\ncmdstat_config|get:calls=2,usec=1\r\n"+
		"cmdstat_evalsha:calls=7,usec=66\r\n")
	if err != nil || calls["config"] != 3 || calls["evalsha"] != 7 {
		t.Errorf("got %v (%v), want 3 config and 7 evalsha", calls, err)
	}
}

// The CPU time of a server is that of all its threads.
func TestCPUTimeOfAProcess(t *testing.T) {
	before, err := cpuOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for start := time.Now(); time.Since(start) < 20*time.Millisecond; { // compute
		}
	}()
	<-done
	if after, err := cpuOf(os.Getpid()); err != nil || after <= before {
		t.Errorf("the CPU time is %v after %v (%v), want more", after, before, err)
	}
}
