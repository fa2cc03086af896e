package memcached

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
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

// reported checks that each attempt fails soon with an error of that kind, and no other, and that text.
func reported(t *testing.T, addr string, kind error, text string) {
	t.Helper()
	store := openNow(t, addr)
	for _, name := range []string{"a", "b", "c"} {
		start := time.Now()
		_, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
		if !errors.Is(err, kind) || errors.Is(err, driver.ErrUnreachable) != errors.Is(kind, driver.ErrUnreachable) || !strings.Contains(err.Error(), text) {
			t.Errorf("Acquire at %s: %v; want %v with %q", addr, err, kind, text)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("Acquire at %s took %v", addr, took)
		}
	}
}

func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	reported(t, "127.0.0.1:1", driver.ErrUnreachable, "refused") // a port that no other test uses
}

// TestTLSPortIsReported: memcachelock does not support TLS.
func TestTLSPortIsReported(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // which reports the handshake
	server.StartTLS()
	defer server.Close()
	reported(t, server.Listener.Addr().String(), driver.ErrUnreachable, "TLS")
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
	reported(t, listener.Addr().String(), driver.ErrMisconfigured, "not an answer of memcached")
}

func TestServerWithoutCASIsReported(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached, "-C")
	reported(t, server.Addr(), driver.ErrMisconfigured, "-C")
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
			store, err := open(servers.Run(t, servers.Memcached, append(c.args, "-o", "slab_automove=0")...).Addr())
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
