package sqllock

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
)

// The types are like those of pgx, as far as they matter.
type (
	likeStdlibConn struct{ conn *likePgxConn }
	likePgxConn    struct {
		err   error
		ended bool
	}
	likePgConn  struct{}
	likeMessage struct {
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

func (c *likePgxConn) Close(context.Context) error {
	c.ended = true
	return nil
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
	conn, _ = asPgx(&likeStdlibConn{&likePgxConn{err: broken}})
	if _, err := conn.next(t.Context()); !errors.Is(err, broken) {
		t.Errorf("waiting says %v, want %v", err, broken)
	}
	inner := &likePgxConn{}
	if err := endConn(&likeStdlibConn{inner}); !errors.Is(err, driver.ErrBadConn) || !inner.ended {
		t.Errorf("the connection is ended: %v, %v", inner.ended, err)
	}
	for _, other := range []any{otherConn{}, struct{}{}, 7} {
		if _, ok := asPgx(other); ok {
			t.Errorf("%T is taken for a connection of pgx", other)
		}
		if err := endConn(other); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("%T is ended with %v, want ErrBadConn", other, err)
		}
	}
}
