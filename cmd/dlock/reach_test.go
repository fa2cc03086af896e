//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/sqllock"
)

// everyServer are URLs of all stores that are servers. The addresses go where the %s are.
var everyServer = []string{
	"redis://%[1]s/0",
	"rediss://%[1]s/0",
	"redis+sentinel://%[1]s,%[2]s/dlock",
	"redis+cluster://%[1]s,%[2]s",
	"redlock://%[1]s,%[2]s,%[3]s",
	"mysql://u:p@%[1]s/dlock",
	"mysql://u:p@%[1]s/dlock?scheme=session",
	"postgres://u:p@%[1]s/dlock",
	"postgres://u:p@%[1]s/dlock?scheme=forupdate",
	"zookeeper://%[1]s,%[2]s",
	"etcd://%[1]s",
	"etcd://u:p@%[1]s,%[2]s",
	"memcached://%[1]s",
}

func storeAt(pattern string, addresses [3]string) string {
	filled := fmt.Sprintf(pattern, addresses[0], addresses[1], addresses[2])
	url, _, _ := strings.Cut(filled, "%!(EXTRA") // of addresses that the pattern does not have
	return url
}

// silentAddresses accept connections and never answer, as a server does that is stopped.
func silentAddresses(t *testing.T) (addresses [3]string) {
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		addresses[i] = listener.Addr().String()
	}
	return addresses
}

// attempt is a run of dlock against a server that does not answer.
type attempt struct {
	url   string
	args  []string
	limit time.Duration
	says  string
}

// runAll runs all attempts at once. Each must end in time with status 69 and one line
// that names the store.
func runAll(t *testing.T, attempts []attempt) {
	b := newBench(t)
	var all sync.WaitGroup
	for _, a := range attempts {
		all.Go(func() {
			cmd := exec.Command(dlockBinary, append([]string{"--store", a.url}, a.args...)...)
			cmd.Dir, cmd.Env = b.folder, b.env
			begin := time.Now()
			r := runToEnd(t, cmd)
			took := time.Since(begin)
			what := fmt.Sprintf("%v on %s", a.args, a.url)
			if took > a.limit {
				t.Errorf("%s took %v; want at most %v: %s", what, took, a.limit, r.stderr)
			}
			if r.status != exitUnavailable {
				t.Errorf("%s: status %d: %s", what, r.status, r.stderr)
			}
			scheme, _, _ := strings.Cut(a.url, ":")
			contains(t, what, r.stderr, "dlock: cannot use "+scheme+"://127.0.0.1:", a.says)
			if strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("%s does not say it in one line: %s", what, r.stderr)
			}
		})
	}
	all.Wait()
}

// TestRefusedPort: a port that nothing listens on is reported soon.
func TestRefusedPort(t *testing.T) {
	var attempts []attempt
	for _, pattern := range everyServer {
		url := storeAt(pattern, [3]string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
		if strings.HasPrefix(url, "redlock:") {
			url += "?member_timeout=2s" // a busy machine may take longer than 50 ms to be refused
		}
		attempts = append(attempts, attempt{url, []string{"exec", "-n", "x", "--", "true"}, 4 * time.Second, "connection refused"})
	}
	runAll(t, attempts)
}

// TestSilentServer: -w bounds everything, the connecting too, and without it a server
// that does not answer is reported after five seconds. The message says so.
func TestSilentServer(t *testing.T) {
	addresses := silentAddresses(t)
	var attempts []attempt
	for _, pattern := range everyServer {
		url := storeAt(pattern, addresses)
		fiveSeconds, second := "5s", "no answer within 1s"
		if strings.HasPrefix(url, "redlock:") { // which has a shorter limit of its own for each member
			fiveSeconds, second = "no answer", ""
		}
		attempts = append(attempts,
			attempt{url, []string{"exec", "-n", "x", "--", "true"}, 9 * time.Second, strings.ReplaceAll(fiveSeconds, "no answer", "no answer within 50ms")},
			attempt{url, []string{"exec", "-w", "1s", "x", "--", "true"}, 4 * time.Second, second},
			attempt{url, []string{"doctor"}, 9 * time.Second, ""},
		)
		if !strings.HasPrefix(url, "memcached:") { // which cannot list
			attempts = append(attempts, attempt{url, []string{"ls"}, 9 * time.Second, fiveSeconds})
		}
	}
	runAll(t, attempts)
}

// TestContextBoundsFirstConnection: whether a store connects when it is opened or with
// the first call, the context of the caller bounds it.
func TestContextBoundsFirstConnection(t *testing.T) {
	t.Parallel()
	addresses := silentAddresses(t)
	var all sync.WaitGroup
	for _, pattern := range everyServer {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			url := storeAt(pattern, addresses)
			begin := time.Now()
			store, err := stores.Open(ctx, url)
			if err == nil {
				client := dlock.New(store.Driver, nil)
				_, err = client.TryLock(ctx, "x")
				go func() { // it waits for what was sent
					_ = client.Close()
					_ = store.Close()
				}()
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("%s: a context of 300ms ended after %v", url, took)
			}
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dlock.ErrUnreachable) {
				t.Errorf("%s: %v", url, err)
			}
		})
	}
	all.Wait()
}

// TestNoWaitReportsNoWaiting: -n does not wait for a lock, even if the file is busy.
func TestNoWaitReportsNoWaiting(t *testing.T) {
	b := newBench(t)
	b.must(0, "exec", "job", "--", "true") // creates the file
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(b.path("locks.db")))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin() // a writer
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	r := b.must(exitUnavailable, "exec", "-v", "-n", "job", "--", "true")
	if strings.Contains(r.stderr, "waiting") {
		t.Errorf("it reports a wait: %s", r.stderr)
	}
}
