package sqldb

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
	conn, ok := AsPgx(&likeStdlibConn{&likePgxConn{}})
	if !ok || conn.PID() != 4711 {
		t.Fatalf("the connection is not known: %v, process %d", ok, conn.PID())
	}
	if channel, payload, err := conn.NextNotification(t.Context()); channel != "channel" || payload != "name" || err != nil {
		t.Errorf("the notification is %s %s, %v", channel, payload, err)
	}
	broken := errors.New("the connection is gone")
	conn, _ = AsPgx(&likeStdlibConn{&likePgxConn{err: broken}})
	if _, _, err := conn.NextNotification(t.Context()); !errors.Is(err, broken) {
		t.Errorf("waiting says %v, want %v", err, broken)
	}
	inner := &likePgxConn{}
	if err := CloseConn(&likeStdlibConn{inner}); !errors.Is(err, driver.ErrBadConn) || !inner.ended {
		t.Errorf("the connection is ended: %v, %v", inner.ended, err)
	}
	for _, other := range []any{otherConn{}, struct{}{}, 7} {
		if _, ok := AsPgx(other); ok {
			t.Errorf("%T is taken for a connection of pgx", other)
		}
		if err := CloseConn(other); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("%T is ended with %v, want ErrBadConn", other, err)
		}
	}
}
