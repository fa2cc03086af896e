package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/dlock-go/dlock/driver"
)

// CheckPq fails if github.com/lib/pq is the driver and a pooler is in between. lib/pq sends a statement and its
// arguments one after the other, and PgBouncer in transaction mode may give the connection to another client
// between the two: then the arguments meet the statement of that client. This module must not import lib/pq, which
// shows neither its options nor the process that it has connected to: hence reflection.
func CheckPq(ctx context.Context, db *sql.DB) error {
	if of := reflect.TypeOf(db.Driver()); of == nil || of.Kind() != reflect.Pointer || of.Elem().PkgPath() != "github.com/lib/pq" {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var binary bool
	var known, pid int64
	err = conn.Raw(func(driverConn any) error {
		binary, known = pqConn(reflect.Indirect(reflect.ValueOf(driverConn)))
		return nil
	})
	if err == nil && !binary && known != 0 {
		err = conn.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid)
	}
	if err == nil && pid != known && pid != 0 {
		err = fmt.Errorf("%w: lib/pq is connected to a pooler, such as PgBouncer in transaction mode, where its statements meet the arguments of other clients: set binary_parameters=yes, or use pgx with default_query_exec_mode=exec",
			driver.ErrMisconfigured)
	}
	return err
}

// pqConn returns whether a connection of lib/pq sends statements together with their arguments, and the process
// that it knows; zero if this version of lib/pq has other fields.
func pqConn(conn reflect.Value) (binary bool, pid int64) {
	field := func(of reflect.Value, kind reflect.Kind, name string) reflect.Value {
		if of.Kind() == reflect.Struct {
			if found := of.FieldByName(name); found.Kind() == kind {
				return found
			}
		}
		return reflect.Zero(map[reflect.Kind]reflect.Type{
			reflect.Bool: reflect.TypeFor[bool](), reflect.Int: reflect.TypeFor[int](), reflect.Struct: reflect.TypeFor[struct{}]()}[kind])
	}
	binary = field(conn, reflect.Bool, "binaryParameters").Bool() ||
		field(field(conn, reflect.Struct, "cfg"), reflect.Bool, "BinaryParameters").Bool()
	return binary, field(conn, reflect.Int, "pid").Int() + field(conn, reflect.Int, "processID").Int()
}
