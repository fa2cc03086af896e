package redis

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// In these tests a master becomes a replica, and its connections stay open.

// TestDemotedMasterBehindAnAddressIsLeft: the address of a server leads to another one. Calls over the
// old connections fail once.
func TestDemotedMasterBehindAnAddressIsLeft(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		both := servers.RunGroup(t, 2, servers.Redis, inMemory...)
		p := proxy.Run(t, both[0].Addr())
		store, _ := openURL(t, "redis://"+p.Addr()+"?protocol="+protocol)
		acquireAndRelease(t, store, "x")
		follow(t, clients(t, both[0].Addr())[0], both[1])
		p.Redirect(both[1].Addr())
		var err error
		for range 3 {
			if _, err = store.Acquire(t.Context(), inMode(driver.Mode{}, "x")); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("%s: the third attempt: %v", protocol, err)
		}
	}
}

// TestClientForReadersFindsTheNewMaster: over a connection for readers the old master of a cluster does
// not name the new one.
func TestClientForReadersFindsTheNewMaster(t *testing.T) {
	t.Parallel()
	top, _, failover := clusterToFailOver(t)
	store, _ := openURL(t, top.url+"?read_only=true")
	acquireAndRelease(t, store, failedOver)
	must(t, failover(t.Context()))
	start := time.Now()
	eventually(t, "the store finds the new master", func() bool {
		grant, err := store.Acquire(t.Context(), inMode(driver.Mode{}, failedOver))
		return err == nil && store.Release(t.Context(), grant) == nil
	})
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the new master was found after %v", took)
	}
}
