package subjects

import (
	"bufio"
	"context"
	"net"
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
func sentBy(t *testing.T, s Served, name string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := s.Prepare(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(redisStore.Subjects, func(s Subject) bool { return s.Name == name })
	connect, err := redisStore.Subjects[at].Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}()
	w, err := client.Worker(t.Context(), "bench/same")
	if err != nil {
		t.Fatal(err)
	}
	pair(t, w)
	pair(t, w)
	single, _, err := redisAddresses(dir)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Millisecond) // on a quick machine the tokens are ahead of the clock, and the counter is written twice
	return executed(t, single, func() { pair(t, w) })
}

func pair(t *testing.T, w Worker) {
	t.Helper()
	if err := w.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// executed returns the commands that the server executes while do runs.
func executed(t *testing.T, addr string, do func()) (seen []string) {
	t.Helper()
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := &monitor{conn: conn}
	lines := bufio.NewReader(conn)
	if err := m.start(lines); err != nil {
		t.Fatal(err)
	}
	do()
	end, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if _, err := end.Write([]byte("ECHO the-end\r\n")); err != nil {
		t.Fatal(err)
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "the-end") {
			return seen
		}
		seen = append(seen, changing.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(line), "+"), "_"))
	}
}

func TestMonitorSeparatesScriptsFromClients(t *testing.T) {
	m := &monitor{asked: make(map[string]float64), all: make(map[string]float64)}
	m.count(`+1339518083.107412 [0 127.0.0.1:60866] "SET" "lua]" "1"`)
	m.count(`+1339518083.107413 [0 lua] "set" "a" "1"`)
	if m.asked["set"] != 1 || m.all["set"] != 2 {
		t.Errorf("%v of %v were sent by clients, want 1 of 2", m.asked["set"], m.all["set"])
	}
}

func TestWorkIsParsedFromINFO(t *testing.T) {
	w := Work{Commands: make(map[string]uint64)}
	err := w.add("# Commandstats\r\ncmdstat_config|resetstat:calls=1,usec=129\r\ncmdstat_config|get:calls=2,usec=1\r\n" +
		"cmdstat_evalsha:calls=7,usec=66\r\n# CPU\r\nused_cpu_sys:0.25\r\nused_cpu_user:1.5\r\nused_cpu_sys_children:4\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if w.Commands["config"] != 3 || w.Commands["evalsha"] != 7 || w.CPU != 1750*time.Millisecond {
		t.Errorf("got %v, want 3 config, 7 evalsha and 1.75s", w)
	}
}
