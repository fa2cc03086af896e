package redislock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestCloseWaitsForTheSearch: the search for the servers of a cluster may outlast the call that
// began it.
func TestCloseWaitsForTheSearch(t *testing.T) {
	for what, call := range map[string]func(context.Context, *route) error{
		"find":  func(ctx context.Context, r *route) error { return r.find(ctx, "key") },
		"nodes": func(ctx context.Context, r *route) error { _, err := r.allServers(ctx)(); return err },
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
