package redislock

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestCloseWaitsForTheSearch: the search for the servers of a cluster may outlast the call that
// began it.
func TestCloseWaitsForTheSearch(t *testing.T) {
	for what, call := range map[string]func(context.Context, *route) error{
		"loadCluster": func(ctx context.Context, r *route) error { return r.loadCluster(ctx, "key") },
		"allServers":  func(ctx context.Context, r *route) error { _, err := r.allServers(ctx)(); return err },
	} {
		t.Run(what, func(t *testing.T) {
			searching, end := make(chan struct{}), make(chan struct{})
			began := sync.OnceFunc(func() { close(searching) })
			client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				began()
				<-end
				return nil, errors.New("no servers")
			}})
			defer client.Close()
			r := newRoute(client, nil, 0, 0)
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error)
			go func() { returned <- call(ctx, r) }()
			<-searching
			cancel()
			if err := <-returned; !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left gets %v", err)
			}
			joined := make(chan struct{})
			go func() {
				r.tasks.running.Wait()
				close(joined)
			}()
			select {
			case <-joined:
				t.Error("nothing waits for the search")
			case <-time.After(50 * time.Millisecond): // however long it lasts
			}
			close(end)
			<-joined
			r.close()
			if err := call(t.Context(), r); err == nil {
				t.Error("a closed route searches")
			}
		})
	}
}

// TestReplacedSendersAreForgotten: a cluster's client may replace the client of a server many
// times. Neither the old senders nor their workers stay. A caller that still has an old one tries
// again.
func TestReplacedSendersAreForgotten(t *testing.T) {
	const addr = "127.0.0.1:1"
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	defer cluster.Close()
	r := newRoute(cluster, nil, 0, 0)
	defer r.close()
	replace := func() *sender {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		s, err := r.senderTo(client)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var senders []weak.Pointer[sender]
	for range 20 {
		s := replace()
		ran := make(chan struct{})
		s.workers.Go(func() { close(ran) })
		<-ran
		senders = append(senders, weak.Make(s))
	}
	old := replace()
	replace()
	cmd := noRetryCmd{redis.NewCmd(t.Context(), "ping")}
	err := old.do(t.Context(), cmd)
	if !r.clientReplaced(err, cmd) || !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrClosed) {
		t.Errorf("a call of a replaced sender: %v; want errReplaced", err)
	}
	kept, workers := len(senders), 0
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit) && (kept > 0 || workers > 0); <-time.After(10 * time.Millisecond) {
		runtime.GC()
		kept = 0
		for _, s := range senders {
			if s.Value() != nil {
				kept++
			}
		}
		stacks := make([]byte, 1<<20)
		workers = bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("workerpool.(*Pool).work("))
	}
	if kept > 0 || workers > 0 {
		t.Errorf("%d senders and %d workers stay; want none", kept, workers)
	}
}

// TestSendersToServersThatLeftEnd: a server that has left its cluster leaves no sender behind.
func TestSendersToServersThatLeftEnd(t *testing.T) {
	const half = 1 << 13 // of the hash slots
	slots := []redis.ClusterSlot{
		{Start: 0, End: half - 1, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}},
		{Start: half, End: 2*half - 1, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:2"}}},
	}
	var left atomic.Bool
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		if left.Load() {
			return []redis.ClusterSlot{{Start: 0, End: 2*half - 1, Nodes: slots[0].Nodes}}, nil
		}
		return slots, nil
	}})
	defer cluster.Close()
	r := newRoute(cluster, nil, 0, 0)
	defer r.close()
	use := func() {
		for _, key := range []string{"a", "b"} { // in the upper and in the lower half
			if _, err := r.senderFor(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	use()
	stays, gone := r.senders["10.0.0.1:1"], r.senders["10.0.0.1:2"]
	if stays == nil || gone == nil {
		t.Fatalf("the senders are %v; want two", r.senders)
	}
	left.Store(true)
	r.checked = time.Now().Add(-2 * checkInterval)
	use()
	kept := func() map[string]*sender {
		r.mu.Lock()
		defer r.mu.Unlock()
		return maps.Clone(r.senders)
	}
	for limit := time.Now().Add(10 * time.Second); len(kept()) > 1 && time.Now().Before(limit); <-time.After(time.Millisecond) {
	}
	if senders := kept(); len(senders) != 1 || senders["10.0.0.1:1"] != stays {
		t.Errorf("the senders are %v; want that of the server which stays", senders)
	}
	cmd := noRetryCmd{redis.NewCmd(t.Context(), "ping")}
	if err := gone.do(t.Context(), cmd); !r.clientReplaced(err, cmd) {
		t.Errorf("a call of a sender that has ended: %v; want errReplaced", err)
	}
}
