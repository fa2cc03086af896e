package sqllock

import (
	"context"
	"database/sql/driver"
	"reflect"
)

// message is what somebody told.
type message struct{ channel, payload string }

// pgxConn is what is needed of a connection of pgx to listen on it, and to close it.
// It can only be had from the driver itself, which this package must not import: hence
// reflection, and all of it is here.
type pgxConn struct {
	conn reflect.Value // a *pgx.Conn
}

// asPgx returns the connection of pgx in what database/sql has from its driver,
// false if that is another driver.
func asPgx(driverConn any) (pgxConn, bool) {
	conn, ok := call(reflect.ValueOf(driverConn).MethodByName("Conn"))
	if !ok {
		return pgxConn{}, false
	}
	wait := conn.MethodByName("WaitForNotification")
	if !wait.IsValid() || wait.Type().NumIn() != 1 || wait.Type().NumOut() != 2 {
		return pgxConn{}, false
	}
	return pgxConn{conn}, true
}

// pid is the process of the server that this is a connection to, as was said
// when it was made; zero if that is not known.
func (c pgxConn) pid() int64 {
	inner, ok := call(c.conn.MethodByName("PgConn"))
	if !ok {
		return 0
	}
	pid, ok := call(inner.MethodByName("PID"))
	if !ok || !pid.CanUint() {
		return 0
	}
	return int64(pid.Uint())
}

// next waits for a message.
func (c pgxConn) next(ctx context.Context) (message, error) {
	answer := c.conn.MethodByName("WaitForNotification").Call([]reflect.Value{reflect.ValueOf(ctx)})
	if err, _ := reflect.TypeAssert[error](answer[1]); err != nil {
		return message{}, err
	}
	told := reflect.Indirect(answer[0])
	return message{told.FieldByName("Channel").String(), told.FieldByName("Payload").String()}, nil
}

// end closes the connection.
func (c pgxConn) end() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if end := c.conn.MethodByName("Close"); end.IsValid() && end.Type().NumIn() == 1 {
		end.Call([]reflect.Value{reflect.ValueOf(ctx)}) // what it returns says that it was not closed in an orderly way
	}
}

// endConn closes the connection beneath one of database/sql, for which it is used
// inside of Raw. To call it bad closes it where database/sql opened it, but one that
// came from a pool of pgx would go back there, with its session as it is.
func endConn(driverConn any) error {
	if pgx, ok := asPgx(driverConn); ok {
		pgx.end()
	}
	return driver.ErrBadConn
}

// call calls a method that takes nothing and returns one value, if it is there.
func call(method reflect.Value) (result reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	return method.Call(nil)[0], true
}
