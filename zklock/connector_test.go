package zklock

import (
	"net"
	"testing"
	"time"
)

// chattyConn is a connection to a server that answers every request, and sends events.
type chattyConn struct {
	net.Conn
	incoming chan struct{}
}

func (c chattyConn) Write(b []byte) (int, error) { c.incoming <- struct{}{}; return len(b), nil }

func (c chattyConn) Read([]byte) (int, error) { <-c.incoming; return 1, nil }

func (chattyConn) Close() error { return nil }

// TestIdleConnectionHasNoLimit: while no request is open, no limit for an answer runs, also
// if an event arrived in the moment of the request.
func TestIdleConnectionHasNoLimit(t *testing.T) {
	s := &connector{}
	s.timeout.Store(int64(time.Hour))
	server := chattyConn{incoming: make(chan struct{}, 2)}
	conn := newServerConn(server, s)
	conn.connectResponse = make([]byte, connectResponseBytes) // it was read before
	reads, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for range reads {
			for range 2 { // the event and the answer
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
			reads <- struct{}{}
		}
	}()
	for range 200_000 {
		reads <- struct{}{}
		server.incoming <- struct{}{}
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		<-reads
		if conn.timer.Stop() {
			t.Fatal("every request is answered, but the limit for an answer still runs")
		}
	}
	close(reads)
	<-done
}
