package memcached

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestQuorumToleratesTheLossOfAServer: a quorum of three servers grants a lock, leaves no item behind, and tolerates
// the loss of one server.
func TestQuorumToleratesTheLossOfAServer(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Memcached)
	lock := func() error {
		var members []driver.Store
		for _, addr := range group.Addrs() {
			members = append(members, openNow(t, addr))
		}
		q, err := quorum.New(members, &quorum.Options{MemberTimeout: 2 * time.Second}) // for a busy machine
		if err != nil {
			t.Fatal(err)
		}
		client := dlock.New(q, &dlock.Options{TTL: 10 * time.Second})
		lease, err := client.Lock(bounded(t), "x")
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		return errors.Join(err, client.Close(), q.Close())
	}
	if err := lock(); err != nil {
		t.Errorf("three servers: %v", err)
	}
	for _, addr := range group.Addrs() {
		if left, err := keys(t.Context(), addr); err != nil || len(left) > 0 {
			t.Errorf("left at %s: %q, %v", addr, left, err)
		}
	}
	if err := group[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := lock(); err != nil {
		t.Errorf("two of three servers: %v", err)
	}
}
