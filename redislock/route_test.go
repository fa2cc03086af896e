package redislock

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
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
