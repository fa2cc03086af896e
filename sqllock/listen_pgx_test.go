package sqllock

import (
	"context"
	"errors"
	"testing"
)

// The types are like those of pgx, as far as they matter.
type (
	likeStdlibConn struct{ conn *likePgxConn }
	likePgxConn    struct{ err error }
	likePgConn     struct{}
	likeMessage    struct {
		PID              uint32
		Channel, Payload string
	}
)

func (c *likeStdlibConn) Conn() *likePgxConn { return c.conn }

func (c *likePgxConn) PgConn() *likePgConn { return &likePgConn{} }

func (c *likePgxConn) WaitForNotification(context.Context) (*likeMessage, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &likeMessage{7, "channel", "name"}, nil
}

func (c *likePgConn) PID() uint32 { return 4711 }

// otherConn has a method of that name, and no messages.
type otherConn struct{}

func (otherConn) Conn() int { return 0 }

func TestPgx(t *testing.T) {
	conn, ok := asPgx(&likeStdlibConn{&likePgxConn{}})
	if !ok || conn.pid() != 4711 {
		t.Fatalf("the connection is not known: %v, process %d", ok, conn.pid())
	}
	if got, err := conn.next(t.Context()); got != (message{"channel", "name"}) || err != nil {
		t.Errorf("the message is %+v, %v", got, err)
	}
	broken := errors.New("the connection is gone")
	conn, _ = asPgx(&likeStdlibConn{&likePgxConn{broken}})
	if _, err := conn.next(t.Context()); !errors.Is(err, broken) {
		t.Errorf("waiting says %v, want %v", err, broken)
	}
	for _, other := range []any{otherConn{}, struct{}{}, 7} {
		if _, ok := asPgx(other); ok {
			t.Errorf("%T is taken for a connection of pgx", other)
		}
	}
}
