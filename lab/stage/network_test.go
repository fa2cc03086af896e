package stage

import (
	"net"
	"strings"
	"testing"
)

// TestNetworkLeavesNothing: where a network can be created, its link is gone after Close. Elsewhere
// the error says what it needs.
func TestNetworkLeavesNothing(t *testing.T) {
	n, err := NewNetwork()
	if err != nil {
		if !strings.Contains(err.Error(), "needs root") {
			t.Errorf("the error does not say what a network needs: %v", err)
		}
		return
	}
	if _, err := net.InterfaceByName(n.outer); err != nil {
		t.Errorf("before Close: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.InterfaceByName(n.outer); err == nil {
		t.Errorf("the link %s is left", n.outer)
	}
}
