package sqllock

import (
	"context"
	"reflect"
)

// message is what somebody told.
type message struct{ channel, payload string }

// pgxMessages finds how a connection of pgx waits for messages. They can only
// be had from the driver itself, which this package must not import, hence
// reflection: stdlib.Conn.Conn().WaitForNotification(ctx). It is nil for other
// drivers.
func pgxMessages(driverConn any) func(context.Context) (message, error) {
	inner := reflect.ValueOf(driverConn).MethodByName("Conn")
	if !inner.IsValid() || inner.Type().NumIn() != 0 || inner.Type().NumOut() != 1 {
		return nil
	}
	method := inner.Call(nil)[0].MethodByName("WaitForNotification")
	if !method.IsValid() || method.Type().NumIn() != 1 || method.Type().NumOut() != 2 {
		return nil
	}
	return func(ctx context.Context) (message, error) {
		answer := method.Call([]reflect.Value{reflect.ValueOf(ctx)})
		if err, _ := answer[1].Interface().(error); err != nil {
			return message{}, err
		}
		told := reflect.Indirect(answer[0])
		return message{told.FieldByName("Channel").String(), told.FieldByName("Payload").String()}, nil
	}
}
