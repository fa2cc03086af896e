package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
)

// shopsOf are the processes of a demo besides dlock itself.
func shopsOf(b *bench) []string {
	return slices.DeleteFunc(demoProcessesIn(b.path("tmp")), func(command string) bool { return !strings.HasPrefix(command, "dlock-demo-") })
}

// Ctrl-C ends a demo with all its processes, also those that have only just started.
func TestCtrlCEndsADemo(t *testing.T) {
	for demo, before := range map[string]string{"oversell": "local: ", "token": "none: "} { // the run before that with locks
		t.Run(demo, func(t *testing.T) {
			b := demoBench(t)
			s := b.onScreen(dlockBinary, "demo", demo, "--store", "sqlite://"+b.folder+"/locks.db")
			s.shows(before)
			eventually(t, "there are processes", func() bool { return len(shopsOf(b)) > 1 })
			s.press(ctrlC)
			s.expect(130)
			b.cleanedUp()
			if out := s.seen.String(); strings.Contains(out, "dlock: ") {
				t.Errorf("it complains about being interrupted: %q", out)
			}
			if r := b.must(0, "ls", "--store", "sqlite://"+b.folder+"/locks.db"); r.stdout != "" {
				t.Errorf("a lock is left: %s", r.stdout)
			}
		})
	}
}

// stoppedProcess reports whether a process of the demo is stopped.
func stoppedProcess(b *bench) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ")) // it may be gone
		stat, _ := os.ReadFile(path)
		if strings.Contains(string(environment), "TMPDIR="+b.path("tmp")+"\x00") && strings.Contains(string(stat), ") T ") {
			return true
		}
	}
	return false
}

// A process that is stopped is no reason to stay, nor one to leave it behind.
func TestSignalsEndAPausedDemo(t *testing.T) {
	b := demoBench(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p := b.start("demo", "pause", "--ttl", "20")
		eventually(t, "a process is stopped", func() bool { return stoppedProcess(b) })
		p.signal(s)
		if s == syscall.SIGKILL {
			p.wait()
			eventually(t, "all processes are gone", func() bool { return len(demoProcessesIn(b.path("tmp"))) == 0 })
			return
		}
		p.expect(supervise.SignalStatus + int(s))
		b.cleanedUp()
	}
}

func TestSignalsEndADemo(t *testing.T) {
	b := demoBench(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p := b.start("demo", "oversell", "--html", "page.html")
		eventually(t, "there are shops", func() bool { return len(shopsOf(b)) > 1 })
		p.signal(s)
		p.expect(supervise.SignalStatus + int(s))
		b.cleanedUp()
		if _, err := os.Stat(b.path("page.html")); err == nil {
			t.Error("an empty page is left")
		}
	}
}

// nginxBench finds nginx where Debian has it.
func nginxBench(t *testing.T) *bench {
	t.Helper()
	b := demoBench(t)
	b.env = append(b.env, "PATH="+os.Getenv("PATH")+":/usr/sbin")
	return b
}

// No process outlives a dlock that had no chance to end them.
func TestKilledDemoLeavesNoProcess(t *testing.T) {
	b := nginxBench(t)
	p := b.start("demo", "oversell", "--nginx")
	eventually(t, "there are shops and nginx", func() bool {
		all := demoProcessesIn(b.path("tmp"))
		return len(shopsOf(b)) > 1 && slices.ContainsFunc(all, func(command string) bool {
			return strings.Contains(command, "nginx") && !strings.Contains(command, "--nginx")
		})
	})
	p.signal(syscall.SIGKILL)
	eventually(t, "all processes are gone", func() bool { return len(demoProcessesIn(b.path("tmp"))) == 0 })
}

func TestDemoOnATerminal(t *testing.T) {
	b := demoBench(t)
	s := b.onScreen(dlockBinary, "demo", "oversell", "--processes", "2", "--clients", "8", "--requests", "3", "--stock", "5", "--think", "5ms")
	s.shows("5 in stock, 24 requests, 2 processes")
	s.shows("none: ")
	s.shows("\x1b[1mGUARD\x1b[0m")
	s.shows("\x1b[31m-")
	s.shows("\x1b[32m0\x1b[0m")
	s.expect(0)
	b.cleanedUp()
}

// With nginx before the shops it is the same.
func TestDemoWithNginx(t *testing.T) {
	b := nginxBench(t)
	checkOversell(t, b.demo(0, "oversell", "--nginx", "--json").stdout, 500, 40)
}
