package memcached

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestNewRejectsABadAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "host", "host:1:2", "memcached://host:1"} {
		if store, err := memcachelock.New(addr, nil); err == nil {
			t.Errorf("New(%q) succeeds", addr)
			store.Close()
		}
	}
}

// refused checks that an attempt fails with ErrUnreachable and that text.
func refused(t *testing.T, addr, text string) {
	t.Helper()
	store, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
	if !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), text) {
		t.Errorf("Acquire at %s: %v; want ErrUnreachable with %q", addr, err, text)
	}
}

func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	refused(t, "127.0.0.1:1", "refused") // a port that no other test uses
}

func TestForeignProtocolIsReported(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	refused(t, listener.Addr().String(), "not an answer of memcached")
}

func TestServerWithoutCASIsReported(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached, "-C")
	refused(t, server.Addr(), "-C")
	store, err := open(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	findings, err := store.(driver.Diagnoser).Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Check == "cas" && f.Level == driver.LevelProblem {
			return
		}
	}
	t.Errorf("no finding reports that items cannot be compared: %v", findings)
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want driver.Level // of the finding about eviction
	}{
		"evicts":         {nil, driver.LevelWarning},
		"evicts nothing": {[]string{"-M"}, driver.LevelOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := open(servers.Run(t, servers.Memcached, c.args...).Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			findings, err := store.(driver.Diagnoser).Diagnose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			levels := make(map[string]driver.Level)
			for _, f := range findings {
				levels[f.Check] = f.Level
			}
			for check, want := range map[string]driver.Level{
				"version": driver.LevelOK, "cas": driver.LevelOK, "clock": driver.LevelOK,
				"persistence": driver.LevelWarning, "eviction": c.want,
			} {
				if levels[check] != want {
					t.Errorf("%s is %q; want %q", check, levels[check], want)
				}
			}
		})
	}
}
