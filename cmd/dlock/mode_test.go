//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// newModeBench returns a bench, and whether its store has shared locks and semaphores. A store
// without them refuses both flags, and the error names it.
func newModeBench(t *testing.T) (*bench, bool) {
	t.Helper()
	b := newBench(t)
	for flag, what := range map[string]string{"--shared": "shared locks", "--limit=2": "semaphores"} {
		if r := b.dlock("exec", "-n", flag, "probe", "--", "true"); r.status != 0 {
			contains(t, flag, r.stderr, "not supported", what, "sqlite")
			b.must(exitUsage, "hold", flag, "probe")
			return b, false
		}
	}
	return b, true
}

// TestSharedHolders: many readers or one writer, all of them in the lists, and a break takes one
// share.
func TestSharedHolders(t *testing.T) {
	b, offered := newModeBench(t)
	if !offered {
		return
	}
	first := b.start("hold", "--shared", "job").granted("job")
	p := b.start("hold", "--shared", "--ttl", "3", "job")
	second := p.granted("job")
	r := b.must(exitNotAcquired, "exec", "-n", "job", "--", "true")
	contains(t, "stderr", r.stderr, "job is held shared by ")
	for _, command := range [][]string{{"ls", "--json"}, {"show", "job", "--json"}} {
		lines := strings.Split(strings.TrimSpace(b.must(0, command...).stdout), "\n")
		if len(lines) != 2 {
			t.Fatalf("%v: want a line for each of two holders:\n%s", command, lines)
		}
		for i, token := range []uint64{first.Token, second.Token} {
			contains(t, strings.Join(command, " "), lines[i], fmt.Sprintf(`"token":%d,`, token), `"mode":"shared"`, `"limit":null`)
		}
	}
	contains(t, "ls", b.must(0, "ls").stdout, "shared")
	contains(t, "show", b.must(0, "show", "job").stdout, "shared", fmt.Sprint(first.Token), fmt.Sprint(second.Token))
	r = b.must(exitNo, "break", "job", "--token", "4711")
	contains(t, "stderr", r.stderr, "not held with token 4711", fmt.Sprint("token ", first.Token), fmt.Sprint("token ", second.Token))
	b.must(0, "break", "job", "--token", fmt.Sprint(second.Token))
	p.expect(exitLost)
	contains(t, "show", b.must(0, "show", "job").stdout, fmt.Sprint(first.Token))
	b.must(exitNotAcquired, "exec", "-n", "job", "--", "true")
	b.must(0, "exec", "-n", "--shared", "job", "--", "true")
}

// TestLimitOfHolders: a semaphore lets its limit in, and refuses another limit and locks at once.
func TestLimitOfHolders(t *testing.T) {
	b, offered := newModeBench(t)
	if !offered {
		return
	}
	p := b.start("hold", "--limit", "2", "gpu")
	p.granted("gpu")
	b.start("exec", "--limit", "2", "gpu", "--", "sh", "-c", "echo ready; sleep 60").line()
	r := b.must(exitNotAcquired, "exec", "-n", "--limit", "2", "gpu", "--", "true")
	contains(t, "stderr", r.stderr, "gpu is held 2 times, which is its limit")
	if n := strings.Count(b.must(0, "ls", "--json").stdout, `"mode":"limit","limit":2,`); n != 2 {
		t.Errorf("%d holders with their limit; want 2", n)
	}
	contains(t, "ls", b.must(0, "ls").stdout, "limit 2")
	for _, flags := range [][]string{nil, {"--shared"}, {"--limit", "3"}} {
		began := time.Now()
		r := b.must(exitUsage, append(append([]string{"exec"}, flags...), "gpu", "--", "true")...)
		contains(t, "stderr", r.stderr, "gpu", "in use as a semaphore with limit 2")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%v: refused after %v; want at once", flags, took)
		}
	}
	p.stdin.Close()
	p.expect(0)
	b.must(0, "exec", "-n", "--limit", "2", "gpu", "--", "true")
}

// TestBadModes: wrong flags are refused before the store is opened.
func TestBadModes(t *testing.T) {
	b := newBench(t)
	for _, bad := range [][]string{{"--limit", "0"}, {"--limit", "-3"}, {"--limit", "2", "--shared"}, {"--limit", "many"}} {
		args := append(append([]string{"exec"}, bad...), "job", "--", "true")
		contains(t, strings.Join(args, " "), b.must(exitUsage, args...).stderr, "limit")
		args = append(append([]string{"hold"}, bad...), "job")
		contains(t, strings.Join(args, " "), b.must(exitUsage, args...).stderr, "limit")
	}
}
