package etcdlock

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func storeWithoutServer(t *testing.T) *Store {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s, err := New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestCancelledCallLeavesNoHold: a call whose context ends before it asks the server leaves no hold
// in memory.
func TestCancelledCallLeavesNoHold(t *testing.T) {
	s := storeWithoutServer(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	failed := 0
	for range 100 { // each locks the hold or notices the end of its context, by chance
		h, err := s.lockHold(cancelled, holdID{"x", driver.NewOwner()}, true)
		if err != nil {
			failed++
			continue
		}
		s.mu.Lock()
		s.dropLocked(h)
		s.mu.Unlock()
		h.busy.unlock()
	}
	if failed == 0 || failed == 100 {
		t.Fatalf("%d of 100 calls noticed the end of their context: this test shows nothing", failed)
	}
	if n := len(s.holds); n > 0 {
		t.Errorf("%d holds are left", n)
	}
}
