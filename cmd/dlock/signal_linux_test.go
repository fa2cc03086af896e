package main

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/sqllock"
)

// alive says whether a process runs; one that has ended but was not waited for
// by its parent does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func (p *process) pid() int {
	p.t.Helper()
	line := p.line()
	pid, err := strconv.Atoi(line)
	if err != nil {
		p.t.Fatalf("expected a process id, got %q", line)
	}
	return pid
}

func dead(t *testing.T, who string, pid int) {
	t.Helper()
	eventually(t, who+" is dead", func() bool { return !alive(pid) })
}

func TestSignalsReachTheWholeGroup(t *testing.T) {
	b := newBench(t)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGABRT, syscall.Signal(40)} {
		t.Run(strconv.Itoa(int(s)), func(t *testing.T) {
			c := newBench(t)
			c.env = b.env
			script := fmt.Sprintf(`trap 'echo outer' %[1]d
				sh -c 'trap "echo inner; exit 0" %[1]d; echo ready; while :; do sleep 0.05; done'
				exit 7`, int(s))
			p := c.start("exec", "signals/"+strconv.Itoa(int(s)), "--", "sh", "-c", script)
			if line := p.line(); line != "ready" {
				t.Fatalf("got %q", line)
			}
			p.signal(s)
			if got := p.line() + " " + p.line(); got != "inner outer" {
				t.Errorf("signal %d: got %q", s, got)
			}
			p.expect(7)
		})
	}
}

func TestInterruptWhileWaiting(t *testing.T) {
	for _, fair := range []string{"--fair=false", "--fair"} {
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fair+s.String(), func(t *testing.T) {
				b := newBench(t)
				holder := b.holder("job", fair)
				p := b.start("exec", "-v", fair, "job", "--", "echo", "no")
				eventually(t, "it waits", func() bool { return strings.Contains(p.stderr.String(), "waiting for") })
				p.signal(s)
				p.expect(128 + int(s))
				if r := b.must(0, "ls", "--json"); !strings.Contains(r.stdout, `"waiters":0`) {
					t.Errorf("it left its place in the queue behind: %s", r.stdout)
				}
				holder.stdin.Close()
				holder.expect(0)
				b.must(0, "exec", "-n", fair, "job", "--", "true")
			})
		}
	}
}

// family is a command with a child in its group, both deaf to TERM.
const family = `trap "" TERM; sleep 1000 & echo $!; echo $$; wait; wait`

func TestKilledDlockTakesTheGroupAlong(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "1s", "job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	p.signal(syscall.SIGKILL)
	p.wait()
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
	b.must(0, "exec", "-w", "5s", "job", "--", "true") // freed by its TTL
}

func TestPausedDlockLosesTheLock(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "600ms", "job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	p.signal(syscall.SIGSTOP)
	next := b.holder("job")
	p.signal(syscall.SIGCONT)
	p.expect(76)
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
	contains(t, "stderr", p.stderr.String(), "dlock: lost job")
	next.stdin.Close()
	next.expect(0)
}

// A stopped dlock cannot end the group, but its guard does: when the next holder gets the lock,
// the group is dead, although dlock is still stopped.
func TestStoppedDlockDoesNotLetTheGroupOutliveTheLease(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "2s", "job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	p.signal(syscall.SIGSTOP)
	const count = `for pid; do grep -s '^State:' /proc/$pid/status; done | grep -vc '[ZX] ('`
	next := b.dlock("exec", "-w", "20s", "job", "--", "sh", "-c", count, "count", strconv.Itoa(grandchild), strconv.Itoa(child))
	if next.stdout != "0\n" {
		t.Errorf("%q of the group were alive when the lock was free", next.stdout)
	}
	p.signal(syscall.SIGCONT)
	p.expect(76)
}

// guardOf returns the process id of the guard that a dlock has started.
func guardOf(t *testing.T, dlock int) int {
	t.Helper()
	guards := guardsOf(t, dlock)
	if len(guards) != 1 {
		t.Fatalf("the guards are %v, want one", guards)
	}
	return guards[0]
}

// guardsOf returns the guards among the children of dlock.
func guardsOf(t *testing.T, dlock int) (guards []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", dlock))
	if err != nil {
		t.Fatal(err)
	}
	var children []byte
	for _, thread := range threads {
		of, _ := os.ReadFile(thread) // the thread may be gone
		children = append(children, of...)
	}
	for field := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(line), "dlock-guard") {
			guards = append(guards, pid)
		}
	}
	return guards
}

// A stopped guard must not keep the lock.
func TestStoppedGuardDoesNotStopDlock(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "job", "--", "sh", "-c", "echo $PPID; read line")
	if err := syscall.Kill(guardOf(t, p.pid()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	p.wait()
	b.must(0, "exec", "-n", "job", "--", "true")
}

// One that is stopped for less than the lease lasts loses nothing.
func TestShortlyStoppedDlockGoesOn(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "4s", "--grace", "100ms", "job", "--", "sh", "-c", "echo on; read line; echo $line")
	if line := p.line(); line != "on" {
		t.Fatalf("got %q", line)
	}
	p.signal(syscall.SIGSTOP)
	<-time.After(1500 * time.Millisecond) // the stop itself is what is tested
	p.signal(syscall.SIGCONT)
	fmt.Fprintln(p.stdin, "still here")
	if line := p.line(); line != "still here" {
		t.Errorf("got %q", line)
	}
	p.expect(0)
}

func TestBrokenLockEndsTheGroup(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "1500ms", "--grace", "200ms", "job", "--", "sh", "-c", "echo $DLOCK_TOKEN;"+family)
	token := p.line()
	grandchild, child := p.pid(), p.pid()
	b.must(1, "break", "job", "--token", "9999")
	r := b.must(0, "break", "job", "--token", token)
	contains(t, "stdout", r.stdout, "broke job", "held with token "+token+" by sh (pid ")
	p.expect(76)
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
	b.must(0, "exec", "-n", "job", "--", "true")
}

// A store that cannot be written to any more makes renewals fail. The group, deaf
// to TERM, must be dead while the store still keeps the lock for it.
func TestGroupIsDeadBeforeTheLeaseIsOver(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "12s", "--grace", "1h", "job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(b.path("locks.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	writing, err := db.Begin() // no other connection can write now
	if err != nil {
		t.Fatal(err)
	}
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
	b.must(0, "show", "job") // still held
	if err := writing.Rollback(); err != nil {
		t.Fatal(err)
	}
	p.expect(76)
}

func TestMaxHoldEndsTheWholeGroup(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--max-hold", "3", "--grace", "0.2", "job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	p.expect(76)
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
}

func TestLossFoundAtRelease(t *testing.T) {
	b := newBench(t)
	p := b.holder("job") // its first renewal is 10 s away
	info := b.must(0, "show", "--json", "job")
	_, after, _ := strings.Cut(info.stdout, `"token":`)
	token, _, _ := strings.Cut(after, ",")
	b.must(0, "break", "job", "--token", token)
	p.stdin.Close()
	p.expect(76)
	contains(t, "stderr", p.stderr.String(), "lost job", "releasing")
}

// TestZombieInTheGroupDoesNotKeepDlock: the parent of a member has left the group and does not wait
// for its child, as the first process of many containers does not wait for the orphans.
func TestZombieInTheGroupDoesNotKeepDlock(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "1500ms", "--grace", "200ms", "job", "--", "sh", "-c", `trap "" TERM
		sh -c 'sleep 1000 & exec setsid sleep 1000' >/dev/null 2>&1 & echo $!
		echo $DLOCK_TOKEN; wait; wait`)
	parent := p.pid()
	defer func() { _ = syscall.Kill(parent, syscall.SIGKILL) }()
	eventually(t, "the parent has left the group", func() bool {
		group, err := syscall.Getpgid(parent)
		return err == nil && group == parent
	})
	b.must(0, "break", "job", "--token", p.line())
	p.expect(76)
}

func TestTermGivesTimeToCleanUp(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "3s", "--grace", "5s", "job", "--",
		"sh", "-c", `trap 'echo cleaned up; exit 0' TERM; echo $DLOCK_TOKEN; while :; do sleep 0.05; done`)
	b.must(0, "break", "job", "--token", p.line())
	if line := p.line(); line != "cleaned up" {
		t.Errorf("got %q", line)
	}
	p.expect(76)
}

func TestBackgroundProcessesOutliveANormalExit(t *testing.T) {
	b := newBench(t)
	r := b.must(0, "exec", "job", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	b.must(0, "exec", "-n", "job", "--", "true")
	if !alive(pid) {
		t.Error("the process in the background was killed")
	}
}

func TestStoppedCommandKeepsItsLock(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "4s", "job", "--", "sh", "-c", `echo $$; read x; echo "$x"`)
	child := p.pid()
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.must(75, "exec", "-w", "5s", "job", "--", "true")
	if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.stdin, "went on")
	if line := p.line(); line != "went on" {
		t.Errorf("got %q", line)
	}
	p.expect(0)
}

func TestSignalEndsMinHold(t *testing.T) {
	b := newBench(t)
	start := time.Now()
	p := b.start("exec", "-v", "--min-hold", "1h", "cron", "--", "sh", "-c", "echo $$; exit 3")
	dead(t, "the command", p.pid())
	p.signal(syscall.SIGTERM)
	p.expect(3)
	if took := time.Since(start); took > patient {
		t.Errorf("it held on for %v", took)
	}
	b.must(0, "exec", "-n", "cron", "--", "true")
}

func TestNoHangupStaysIgnored(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "job", "--", "sh", "-c", "echo up; exec cat")
	p.line()
	p.signal(syscall.SIGHUP)
	p.expect(128 + int(syscall.SIGHUP))

	r := b.must(0, "exec", "outer", "--", "nohup", "dlock", "exec", "job", "--", "sh", "-c", "kill -HUP $$; echo still here")
	contains(t, "stdout", r.stdout, "still here")
}

// TestInterruptWhileConnecting: a signal does not wait for a server that accepts connections
// and never answers, and dlock does not report any more that it waits.
func TestInterruptWhileConnecting(t *testing.T) {
	for _, url := range []string{
		"redis://%s", "redis+cluster://%s", "etcd://%s", "zookeeper://%s", "memcached://%s", "mysql://joe@%s/db", "postgres://joe@%s/db?sslmode=disable",
	} {
		kind, _, _ := strings.Cut(url, ":")
		t.Run(kind, func(t *testing.T) {
			b := newBench(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			accepted := make(chan struct{}, 100)
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					defer conn.Close() // when the test is over
					accepted <- struct{}{}
				}
			}()
			p := b.start("exec", "-v", "--store", fmt.Sprintf(url, listener.Addr()), "job", "--", "echo", "no")
			select {
			case <-accepted:
			case <-time.After(patient):
				t.Fatalf("it does not connect; stderr: %s", p.stderr.String())
			}
			start := time.Now()
			p.signal(syscall.SIGINT)
			if status := p.wait(); status != 130 && status != -1 {
				t.Errorf("status %d, stderr: %s", status, p.stderr.String())
			}
			if took := time.Since(start); took > 3*time.Second { // the server would be given up after five
				t.Errorf("it ended %v after the signal", took)
			}
			if strings.Contains(p.stderr.String(), "waiting") {
				t.Errorf("it reports a wait: %s", p.stderr.String())
			}
		})
	}
}
