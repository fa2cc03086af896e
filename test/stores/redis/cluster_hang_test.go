package redis

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestHangingMasterCostsNoOtherLocks: a client has many locks on all masters of a cluster, and one
// master hangs until its locks are lost. Locks of the other masters are kept, also those with a short
// TTL, for which no renewal may wait. The machine may stall for a second, so that a round may fail.
func TestHangingMasterCostsNoOtherLocks(t *testing.T) {
	t.Parallel()
	c := servers.RunCluster(t, append([]string{"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no"}, inMemory...)...)
	lookup := clusterClient(t, c)
	for round := range 3 {
		lost := lostBesideHanging(t, c.URL(), c.Nodes[0], func(name string) bool {
			node, err := lookup.MasterForKey(t.Context(), name)
			return err == nil && strings.HasSuffix(c.Nodes[0].Addr(), node.Options().Addr)
		}, fmt.Sprint("round ", round))
		if lost == 0 {
			return
		}
		t.Logf("round %d: %d locks of healthy masters were lost", round, lost)
	}
	t.Error("locks of healthy masters were lost in each round")
}

// lostBesideHanging returns how many locks of healthy masters are lost while one hangs.
func lostBesideHanging(t *testing.T, url string, hangs *servers.Server, isOnHanging func(name string) bool, prefix string) int64 {
	t.Helper()
	store, err := open(t.Context(), url)
	must(t, err)
	defer store.Close()
	var lostThere, lostElsewhere atomic.Int64
	client := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Lost: func(e dlock.Event) {
		if isOnHanging(e.Name) {
			lostThere.Add(1)
		} else {
			lostElsewhere.Add(1)
		}
	}}})
	defer client.Close()
	there, short := int64(0), 0
	ticker := time.NewTicker(3 * time.Millisecond) // so that the renewals are due at different times
	defer ticker.Stop()
	for i := 0; i < 500 || short < 3; i++ {
		name, ttl := fmt.Sprint(prefix, " ", i), 7500*time.Millisecond
		switch onHanging := isOnHanging(name); {
		case onHanging:
			there++
		case short < 3:
			short++
			ttl = time.Second
		}
		if _, err := client.Lock(t.Context(), name, dlock.WithTTL(ttl)); err != nil {
			t.Fatal(err)
		}
		<-ticker.C
	}
	must(t, hangs.Pause())
	await.Until(t, "all locks of the master that hangs are lost", func() bool { return lostThere.Load() == there })
	must(t, hangs.Resume())
	return lostElsewhere.Load()
}
