// Package demo tests the demos of the command line on real stores and databases.
package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestMain(m *testing.M) {
	status := m.Run()
	command.Remove()
	os.Exit(status)
}

// small is a scenario that takes a few seconds.
var small = []string{"--processes", "4", "--clients", "20", "--requests", "5", "--stock", "12", "--json"}

const (
	requests = 100
	stock    = 12
)

// run is a line of "dlock demo oversell --json".
type run struct {
	Guard      string
	Requests   int
	Sold       int
	FinalStock int `json:"final_stock"`
	AtOnce     int `json:"at_once"`
}

// oversell runs the demo and checks its results.
func oversell(t *testing.T, store string, args ...string) {
	t.Helper()
	out := command.Run(t, store, append(append([]string{"demo", "oversell"}, small...), args...)...)
	if out.Status != 0 {
		t.Fatalf("the demo ended with status %d:\n%s%s", out.Status, out.Stdout, out.Stderr)
	}
	guards := []string{"none", "local", "dlock", "fenced"}
	for decoder := json.NewDecoder(strings.NewReader(out.Stdout)); decoder.More(); {
		var r run
		if err := decoder.Decode(&r); err != nil {
			t.Fatalf("%v in %s", err, out.Stdout)
		}
		if len(guards) == 0 || r.Guard != guards[0] || r.Requests != requests || r.FinalStock != stock-r.Sold {
			t.Fatalf("%+v; want the guards %q in turn", r, guards)
		}
		guards = guards[1:]
		shared := r.Guard == "dlock" || r.Guard == "fenced"
		switch {
		case shared && (r.FinalStock != 0 || r.AtOnce != 1):
			t.Errorf("%+v; want exactly the stock sold", r)
		case !shared && r.FinalStock >= 0:
			t.Errorf("%+v; want more sold than the stock", r)
		}
	}
	if len(guards) > 0 {
		t.Errorf("no run with %q", guards)
	}
}

// token runs the demo of tokens.
func token(t *testing.T, store string) {
	t.Helper()
	out := command.Run(t, store, "demo", "token", "--processes", "5", "--calls", "5", "--json")
	if out.Status != 0 || !strings.Contains(out.Stdout, `{"guard":"dlock","processes":5,"calls":25,"failed":0,"fetches":1,`) {
		t.Errorf("the demo ended with status %d:\n%s%s", out.Status, out.Stdout, out.Stderr)
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	for _, kind := range []*servers.Kind{servers.Redis, servers.ZooKeeper, servers.Etcd, servers.Memcached} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			store := servers.URL(t, kind)
			oversell(t, store)
			token(t, store)
		})
	}
}

// databases can keep the stock, and the locks too.
var databases = []struct {
	kind   *servers.Kind
	tables string // selects the tables of the demo
}{
	{servers.MariaDB, `SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'dlock\_demo\_%'`},
	{servers.Postgres, `SELECT relname FROM pg_class WHERE relname LIKE 'dlock\_demo\_%'`},
}

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
			oversell(t, server.URL(), "--db", server.URL())
			token(t, server.URL())
			if left := tables(); left != "" {
				t.Errorf("tables that are left: %s", left)
			}
			interrupt(t, server.URL(), tables)
		})
	}
}

// interrupt ends a demo while its table exists.
func interrupt(t *testing.T, database string, tables func() string) {
	t.Helper()
	cmd := command.New(t, "", "demo", "oversell", "--db", database)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for tables() == "" {
		select {
		case <-limit:
			t.Fatalf("the table never appeared: %s", stderr.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit status is checked below
	if status := cmd.ProcessState.ExitCode(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("it ended with status %d: %s", status, stderr.String())
	}
	if left := tables(); left != "" {
		t.Errorf("after a signal tables are left: %s", left)
	}
}
