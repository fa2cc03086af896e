package zklock

import (
	"errors"
	"strings"
	"testing"
)

// TestImpossibleTimeoutIsRejected: a timeout that no server can meet is an error of the URL.
func TestImpossibleTimeoutIsRejected(t *testing.T) {
	for _, timeout := range []string{"0", "-1s", "1ms", "99ms", "25h", "10"} {
		_, err := Open(t.Context(), "zookeeper://h?timeout="+timeout, nil)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), "timeout") || !strings.Contains(err.Error(), "100ms") {
			t.Errorf("timeout=%s: %v; want ErrURL that says what is allowed", timeout, err)
		}
	}
}
