package zklock

import (
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/clock"
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
	s := &connector{clock: clock.New()}
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

// TestSilenceShortensPromise: the leader counts the timeout of a session from a request that its
// follower has reported. The session lasts for less than three quarters of the timeout after a
// request that follows a silence.
func TestSilenceShortensPromise(t *testing.T) {
	passed := time.Duration(0)
	s := &connector{clock: clock.NewSuspending(func() time.Duration { return passed })}
	s.timeout.Store(int64(12 * time.Minute))
	server := chattyConn{incoming: make(chan struct{}, 1)}
	s.current = newServerConn(server, s)
	for _, step := range []struct{ silence, want time.Duration }{
		{0, 12 * time.Minute},               // the request for the session
		{2 * time.Minute, 10 * time.Minute}, // not reported yet
		{4 * time.Minute, 8 * time.Minute},
		{2 * time.Minute, 6 * time.Minute},
		{time.Minute, 9 * time.Minute}, // the request after six minutes is reported
	} {
		passed += step.silence
		s.clock.Now() // measures the silence
		if _, err := s.current.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		<-server.incoming
		if got := s.remaining(s.clock.Now()).Round(time.Second); got != step.want {
			t.Errorf("after %v: %v; want %v", passed, got, step.want)
		}
	}
}
