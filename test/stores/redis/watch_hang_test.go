package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// patient are the parameters of a client whose own timeouts end no call while a test runs.
const patient = "dial_timeout=1m&read_timeout=1m&write_timeout=1m"

// promptly is shorter than any timeout that could end a call to a server that hangs: patient, and
// the four seconds after which a subscription counts a server as silent.
const promptly = 3 * time.Second

// TestWatchReturnsWhenItsContextEnds: the server accepts connections and hangs. The store can be
// closed meanwhile.
func TestWatchReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	for _, scheme := range []string{"redis", "redis+cluster"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			store, err := open(t.Context(), scheme+"://"+listener.Addr().String()+"?"+patient)
			must(t, err)
			mustTimeOutWatching(t, store)
			mustTimeOutWatching(t, store) // while the client is connecting
			closePromptly(t, store)
		})
	}
}

// TestWatchOnAnOldConnectionReturnsWhenItsContextEnds: the server hangs after it has answered.
func TestWatchOnAnOldConnectionReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	p := proxy.Run(t, server.Addr())
	store, err := open(t.Context(), "redis://"+p.Addr()+"?"+patient)
	must(t, err)
	_, stop := watch(t, store, driver.Request{Name: "before", Owner: driver.NewOwner()})
	defer stop()
	p.Hang(true)
	p.Hold()
	mustTimeOutWatching(t, store)
	p.Reset() // the client reconnects to a server that hangs
	mustTimeOutWatching(t, store)
	closePromptly(t, store)
}

// mustTimeOutWatching demands that Watch fails when its context ends.
func mustTimeOutWatching(t *testing.T, store driver.Store) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := store.(driver.Watcher).Watch(ctx, driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner()}, func() {})
			if took := time.Since(began); err == nil || took > promptly {
				t.Errorf("Watch with a context of 100 ms returned %v after %v", err, took)
			}
		})
	}
	all.Wait()
}

func closePromptly(t *testing.T, store driver.Store) {
	t.Helper()
	began := time.Now()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > promptly {
		t.Errorf("Close took %v while the server hangs; want less than %v", took, promptly)
	}
}
