package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"time"
)

// Pgx is a connection of pgx, to listen on and to close. This module must not import pgx: hence
// reflection.
type Pgx struct {
	conn reflect.Value // a *pgx.Conn
}

// AsPgx returns the connection of pgx in what database/sql has from its driver. It
// reports false if that is another driver.
func AsPgx(driverConn any) (Pgx, bool) {
	conn, ok := call(reflect.ValueOf(driverConn).MethodByName("Conn"))
	if !ok {
		return Pgx{}, false
	}
	wait := conn.MethodByName("WaitForNotification")
	if !wait.IsValid() || wait.Type().NumIn() != 1 || wait.Type().NumOut() != 2 {
		return Pgx{}, false
	}
	return Pgx{conn}, true
}

// PID returns the server process that the driver has known since it connected; zero if it
// does not.
func (c Pgx) PID() int64 {
	if inner, ok := call(c.conn.MethodByName("PgConn")); ok {
		if process, ok := reflect.TypeAssert[interface{ PID() uint32 }](inner); ok {
			return int64(process.PID())
		}
	}
	return 0
}

// NextNotification blocks until a notification arrives.
func (c Pgx) NextNotification(ctx context.Context) (channel, payload string, err error) {
	answer := c.conn.MethodByName("WaitForNotification").Call([]reflect.Value{reflect.ValueOf(ctx)})
	if err, _ := reflect.TypeAssert[error](answer[1]); err != nil {
		return "", "", err
	}
	notification := reflect.Indirect(answer[0])
	return notification.FieldByName("Channel").String(), notification.FieldByName("Payload").String(), nil
}

// closeLimit is how long the server may take to close a connection.
const closeLimit = 5 * time.Second

// CloseConn closes the connection beneath one of database/sql: pass it to Raw. ErrBadConn
// makes database/sql close what it opened itself. A connection from a pool of pgx would go
// back to that pool instead, with its session, so CloseConn closes it first.
func CloseConn(driverConn any) error {
	if pgx, ok := AsPgx(driverConn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if conn, ok := reflect.TypeAssert[interface{ Close(context.Context) error }](pgx.conn); ok {
			_ = conn.Close(ctx) // its error says that the server did not confirm
		}
	}
	return driver.ErrBadConn
}

// Discard closes a connection for good, also one of a pool of pgx.
func Discard(conn *sql.Conn) {
	_ = conn.Raw(CloseConn)
	_ = conn.Close() // it is closed already
}

// call calls a method that takes nothing and returns one value, if it exists.
func call(method reflect.Value) (result reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	return method.Call(nil)[0], true
}
