package memcachelock

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestIdleConnectionsAreClosed: a burst opens many connections. While a single one does all the
// work, the others are closed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	p, now := &pool{}, time.Now()
	var servers []net.Conn
	for range maxConns {
		client, server := net.Pipe()
		servers = append(servers, server)
		p.put(&conn{net: client, began: now, dialed: now})
	}
	for end := now.Add(maxIdleTime + maxConns*verifyAfter); now.Before(end); {
		if open := len(p.idle); open < maxConns && now.Before(end.Add(-maxConns*verifyAfter)) {
			t.Fatalf("%d connections are open; want %d for %v", open, maxConns, maxIdleTime)
		}
		now = now.Add(verifyAfter - time.Millisecond)
		c, err := p.take(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		c.began = now
		p.put(c)
	}
	if len(p.idle) != 1 {
		t.Errorf("%d connections are open; want 1", len(p.idle))
	}
	for _, server := range servers[:maxConns-1] { // the last one is in use
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection was not closed: %v", err)
		}
	}
}
