//go:build linux

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers"
)

// result is a line of --json.
type result struct {
	Guard      string
	Verdict    string
	OK         bool
	Requests   int
	Sold       int
	FinalStock int `json:"final_stock"`
	Stock      int
	AtOnce     int `json:"at_once"`
	Calls      int
	Failed     int
	Fetches    int
	Refused    int
	Seconds    float64
	TTLMS      int `json:"ttl_ms"`
	PausedMS   int `json:"paused_ms"`
}

func decode(t *testing.T, text string, guards ...string) (all []result) {
	t.Helper()
	var got []string
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var one result
		if err := decoder.Decode(&one); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		all, got = append(all, one), append(got, one.Guard)
	}
	if !slices.Equal(got, guards) {
		t.Fatalf("want a line for each of %q:\n%s", guards, text)
	}
	return all
}

// small is a story that takes a few seconds.
var small = []string{"--processes", "4", "--clients", "20", "--requests", "5", "--stock", "12", "--json"}

const (
	smallRequests = 100
	smallStock    = 12
)

// playSmall plays oversell and token on a store.
func playSmall(t *testing.T, args ...string) {
	t.Helper()
	p := newProgram(t, append(append([]string{"oversell"}, small...), args...)...).run(0)
	checkOversell(t, p.stdout.String(), smallRequests, smallStock)
	p = newProgram(t, append([]string{"token", "--processes", "5", "--requests", "5", "--json"}, args[:2]...)...).run(0)
	if with := decode(t, p.stdout.String(), "none", "dlock")[1]; with.Calls != 25 || with.Failed != 0 || with.Fetches != 1 {
		t.Errorf("with a lock: %+v; want no call that fails, and one fetch", with)
	}
}

// TestStores: the stories are played on servers that the laboratory starts, and on those that run.
func TestStores(t *testing.T) {
	t.Parallel()
	for _, kind := range []*servers.Kind{servers.Redis, servers.ZooKeeper, servers.Etcd, servers.Memcached} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			playSmall(t, "--store", servers.URL(t, kind))
		})
	}
	t.Run("started", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, "pause", "--store", "redis,memcached", "--ttl", "0.5", "--json").run(0)
		for i, r := range decode(t, p.stdout.String(), "dlock", "fenced", "dlock", "fenced") {
			if want := []int{500, 500, 1000, 1000}[i]; r.TTLMS != want {
				t.Errorf("%+v; want a TTL of %d ms, as the store grants it", r, want)
			}
		}
		if !strings.Contains(p.stderr.String(), "servers are started and stopped for each result: redis, memcached") {
			t.Errorf("it does not say that it starts servers: %s", p.stderr.String())
		}
	})
}

// databases can keep the stock, and the locks too.
var databases = []struct {
	kind   *servers.Kind
	tables string // selects the tables of the stories
}{
	{servers.MariaDB, `SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'dlock\_lab\_%'`},
	{servers.Postgres, `SELECT relname FROM pg_class WHERE relname LIKE 'dlock\_lab\_%'`},
}

// TestDatabases: the stock is in a table of its own, which is gone at the end, also after a signal.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, d.kind)
			tables := func() string {
				found, err := server.SQL(t.Context(), d.tables)
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			playSmall(t, "--store", server.URL(), "--db", server.URL())
			if left := tables(); left != "" {
				t.Errorf("tables that are left: %s", left)
			}
			p := newProgram(t, "oversell", "--db", server.URL())
			p.interrupt(syscall.SIGTERM, func([]string) bool { return tables() != "" })
			p.ended(130)
			if left := tables(); left != "" {
				t.Errorf("after a signal tables are left: %s", left)
			}
		})
	}
}
