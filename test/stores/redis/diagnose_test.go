package redis

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func diagnose(t *testing.T, url string) []driver.Finding {
	t.Helper()
	store, _ := openURL(t, url)
	findings, err := store.(driver.Diagnoser).Diagnose(t.Context())
	must(t, err)
	return findings
}

func TestDiagnose(t *testing.T) {
	t.Run("as recommended", func(t *testing.T) {
		t.Parallel()
		for _, f := range diagnose(t, servers.Run(t, servers.Redis).URL()) {
			if f.Level != driver.LevelOK {
				t.Errorf("%s is %s: %s", f.Check, f.Level, f.Message)
			}
		}
	})
	t.Run("encryption", func(t *testing.T) {
		t.Parallel()
		server := servers.RunRedisTLS(t)
		expect(t, diagnose(t, server.URL()+"?ca="+url.QueryEscape(server.CAFile)), "encryption", driver.LevelOK, "is encrypted")
		expect(t, diagnose(t, servers.RunSentinel(t, servers.SentinelOptions{}).URL()), "encryption", driver.LevelOK, "does not leave this machine")
	})
	t.Run("eviction", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.Redis)
		raw := clients(t, server.Addr())[0]
		for policy, says := range map[string]string{
			"volatile-lru": "every lock", "volatile-ttl": "every lock", "allkeys-lru": "the counters of tokens", "allkeys-random": "any key",
		} {
			must(t, raw.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
			expect(t, diagnose(t, server.URL()), "eviction", driver.LevelWarning, says)
		}
	})
	t.Run("persistence", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.Redis)
		raw := clients(t, server.Addr())[0]
		must(t, raw.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		expect(t, diagnose(t, server.URL()), "persistence", driver.LevelWarning, "everysec")
		must(t, raw.ConfigSet(t.Context(), "appendonly", "no").Err())
		expect(t, diagnose(t, server.URL()), "persistence", driver.LevelWarning, "is off")
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		s := servers.RunSentinel(t, servers.SentinelOptions{})
		expect(t, diagnose(t, s.URL()), "replication", driver.LevelWarning, "Connected replicas: 2")
		expect(t, diagnose(t, s.URL()+"?replicas=1"), "replication", driver.LevelWarning, "1 must acknowledge")
		expect(t, diagnose(t, s.URL()+"?replicas=2"), "replication", driver.LevelOK, "must all acknowledge")
		expect(t, diagnose(t, s.URL()+"?replicas=3"), "replication", driver.LevelProblem, "No lock can be taken")
		expect(t, diagnose(t, "redis://"+s.Servers[1].Addr()), "replication", driver.LevelProblem, "is a replica")
	})
	t.Run("every server of a cluster", func(t *testing.T) {
		t.Parallel()
		c := servers.RunCluster(t)
		findings := diagnose(t, c.URL())
		for _, master := range c.Nodes[:3] {
			expect(t, findings, "version", driver.LevelOK, master.Addr())
		}
	})
	t.Run("clock", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.WithClock(servers.Redis))
		must(t, server.SetClock(90*time.Minute))
		expect(t, diagnose(t, server.URL()), "clock", driver.LevelWarning, "is 1h")
	})
	t.Run("the answer about the clock is late", func(t *testing.T) {
		t.Parallel()
		p := proxy.Run(t, servers.Run(t, servers.Redis).Addr())
		p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("\r\ntime\r\n")) }, func(*proxy.Conn) {
			p.Hold(proxy.Replies)
			time.AfterFunc(2500*time.Millisecond, p.Deliver)
		})
		expect(t, diagnose(t, "redis://"+p.Addr()+"?"+patient), "clock", driver.LevelOK, "The server's clock is -")
	})
	t.Run("no permission for INFO", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.Redis)
		raw := clients(t, server.Addr())[0]
		must(t, raw.Do(t.Context(), "acl", "setuser", "blind", "on", ">pw", "~*", "&*", "+@all", "-info", "-config").Err())
		expect(t, diagnose(t, "redis://blind:pw@"+server.Addr()), "info", driver.LevelWarning, "may not run INFO")
	})
}

// expect demands a finding with that check, level and text.
func expect(t *testing.T, findings []driver.Finding, check string, level driver.Level, says string) {
	t.Helper()
	for _, f := range findings {
		if f.Check == check && f.Level == level && strings.Contains(f.Message, says) {
			return
		}
	}
	t.Errorf("no finding %q of level %q says %q; found are %+v", check, level, says, findings)
}

// TestDiagnoseOfAServerThatDies: a connection that ends is an error, not a missing permission.
func TestDiagnoseOfAServerThatDies(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, "--appendonly", "yes")
	p := proxy.Run(t, server.Addr())
	store, _ := openURL(t, "redis://"+p.Addr())
	p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("appendfsync")) }, func(c *proxy.Conn) { c.Reset() })
	if findings, err := store.(driver.Diagnoser).Diagnose(t.Context()); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Diagnose: %v, %v; want ErrUnreachable", findings, err)
	}
}
