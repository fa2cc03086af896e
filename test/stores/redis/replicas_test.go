package redis

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestMissingReplicasRefuseTheLock: without a replica all callers get an error within one replica
// timeout, and no lock remains.
func TestMissingReplicasRefuseTheLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis)
	raw := clients(t, server.Addr())[0]
	for _, protocol := range protocols {
		const limit = 300 * time.Millisecond
		url := server.URL() + "?protocol=" + protocol
		store, _ := openURL(t, url+"&replicas=1&replica_timeout="+limit.String())
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := store.Acquire(t.Context(), driver.Request{Name: fmt.Sprintf("%s-%d", protocol, i), Owner: driver.NewOwner(), TTL: time.Minute})
				if !errors.Is(err, redislock.ErrNotReplicated) {
					t.Errorf("Acquire: %v; want ErrNotReplicated", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 16*limit/2 {
			t.Errorf("16 callers waited %v for replicas, one after another", took)
		}
		if keys := raw.Keys(t.Context(), protocol+"-*").Val(); len(keys) > 0 {
			t.Errorf("left are %v", keys)
		}

		// A lock that is held is reported as held, not as not replicated.
		plain, _ := openURL(t, url)
		grant, err := plain.Acquire(t.Context(), driver.Request{Name: "held-" + protocol, Owner: driver.NewOwner(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Acquire(t.Context(), driver.Request{Name: grant.Name, Owner: driver.NewOwner(), TTL: time.Minute}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire of a held lock: %v; want ErrHeld", err)
		}

		// A renewal without an acknowledgement is an error, but not a loss.
		for _, err := range store.Renew(t.Context(), []driver.Grant{grant}) {
			if !errors.Is(err, redislock.ErrNotReplicated) || errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Renew: %v; want ErrNotReplicated", err)
			}
		}
	}
}

func TestReplicaTimeoutHasToBeBelowReadTimeout(t *testing.T) {
	_, err := redislock.Open(t.Context(), "redis://localhost?replicas=1&read_timeout=500ms", nil)
	if err == nil || !strings.Contains(err.Error(), "ReplicaTimeout") {
		t.Errorf("Open: %v; want a refusal: the wait for replicas would never end in time", err)
	}
}
