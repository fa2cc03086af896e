package zklock

import (
	"net"
	"testing"
	"time"
)

// chatter is a connection to a server that answers everything at once, and says something
// by itself now and then.
type chatter struct {
	net.Conn
	incoming chan struct{}
}

func (c chatter) Write(b []byte) (int, error) { c.incoming <- struct{}{}; return len(b), nil }

func (c chatter) Read([]byte) (int, error) { <-c.incoming; return 1, nil }

func (chatter) Close() error { return nil }

// TestIdleConnectionHasNoLimit: while nothing is asked, no limit for an answer runs, also
// if the server said something just when a request was sent.
func TestIdleConnectionHasNoLimit(t *testing.T) {
	s := &session{}
	s.timeout.Store(int64(time.Hour))
	conn := chatter{incoming: make(chan struct{}, 2)}
	l := newLine(conn, s)
	l.answer = make([]byte, greetingBytes) // it has been heard
	reads, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for range reads {
			for range 2 { // what the server says by itself, and its answer
				if _, err := l.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
			reads <- struct{}{}
		}
	}()
	for range 200_000 {
		reads <- struct{}{}
		conn.incoming <- struct{}{}
		if _, err := l.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		<-reads
		if l.timer.Stop() {
			t.Fatal("everything is answered, and the connection will be closed all the same")
		}
	}
	close(reads)
	<-over
}
