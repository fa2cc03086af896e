package etcdlock

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestOpenLeavesNothing: a call whose context ends before it begins to ask the server
// leaves nothing in memory.
func TestOpenLeavesNothing(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := 0
	for range 100 { // each takes the hold or sees the end of the context, by chance
		h, err := s.open(ended, identity{"x", driver.NewOwner()})
		if err != nil {
			failed++
			continue
		}
		s.drop(h)
		h.leave()
	}
	if failed == 0 || failed == 100 {
		t.Fatalf("%d of 100 saw the end of their context, so that this test shows nothing", failed)
	}
	if n := len(s.holds); n > 0 {
		t.Errorf("%d holds are left", n)
	}
}
