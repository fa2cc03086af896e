package etcdlock

import (
	"context"
	"errors"
	"testing"
)

// TestReplacedConnectionIsNoAnswer: a request that fails because its connection was replaced meanwhile
// is sent over the new one, also if it was not late. Other failures are answers.
func TestReplacedConnectionIsNoAnswer(t *testing.T) {
	s := storeWithoutServer(t)
	failed := errors.New("failed")
	for _, replaced := range []bool{true, false} {
		var over []*conn
		_, tries, err := retry(t.Context(), s, func(_ context.Context, c *conn) (int, error) {
			if over = append(over, c); len(over) > 1 {
				return 0, nil
			}
			if replaced {
				s.replace(c, s.clientConn())
			}
			return 0, failed
		})
		switch {
		case replaced && (err != nil || tries != 2 || over[1] == over[0]):
			t.Errorf("replaced: %d tries, the last one with the error %v; want 2, over two connections", tries, err)
		case !replaced && (err != failed || tries != 1):
			t.Errorf("not replaced: %d tries, the last one with the error %v; want 1", tries, err)
		}
	}
}
