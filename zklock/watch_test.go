package zklock

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// TestGoneNodesAreForgotten: of a node that was gone before it could be watched nothing
// stays, whoever wanted to know of its end.
func TestGoneNodesAreForgotten(t *testing.T) {
	s := openFake(t, runFake(t)) // which has no node
	c := s.enter(claimKey{"x", driver.NewOwner()}, true)
	defer s.leave(c)
	path := c.parent + "/" + prefixOf(c.id) + "0000000000"
	if _, _, err := s.watchNode(c, path); !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("watching a node that is not there: %v", err)
	}
	s.mu.Lock()
	if n := len(s.watches); n != 0 {
		t.Errorf("who waited for it left %d nodes", n)
	}
	clear(s.watches)
	s.mu.Unlock()
	if err := s.guard(c, path, 1); err != nil {
		t.Fatalf("guarding a node that is not there: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.watches); n != 0 {
		t.Errorf("its holder left %d nodes", n)
	}
}
