package sqlservers

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestMissingFloor: without the row at which tokens begin no new name can be locked. That is not
// reported as a lock that another owner holds.
func TestMissingFloor(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store := s.open(t)
		run(t, s.admin(t), "DELETE FROM dlock_meta WHERE value = 0") // of a new store
		_, alone := store.Acquire(within(t), request("new"))
		_, all := store.AcquireAll(within(t), []driver.Request{request("first"), request("second")})
		reader := request("read")
		reader.Mode = shared
		_, read := store.Acquire(within(t), reader)
		for what, err := range map[string]error{"Acquire": alone, "AcquireAll": all, "a shared Acquire": read} {
			if !errors.Is(err, driver.ErrMisconfigured) || errors.Is(err, driver.ErrHeld) {
				t.Errorf("%s without the floor: %v; want ErrMisconfigured", what, err)
			}
		}
	})
}

// TestListWithControlCharacters: no name has a control character, so that nothing is listed.
func TestListWithControlCharacters(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store := s.open(t)
		defer release(t, store, acquire(t, store, "a")...)
		for _, prefix := range []string{"\x00", "a\x00", "a\n"} {
			for info, err := range store.List(within(t), prefix) {
				t.Errorf("List(%q): %+v, %v", prefix, info, err)
			}
		}
	})
}

// TestTransactionEndedForIdling: PostgreSQL ends a transaction in whose middle the client is silent for
// two seconds. It is made again. MariaDB ends the connection without a reason.
func TestTransactionEndedForIdling(t *testing.T) {
	only(t, postgres, func(t *testing.T) {
		store, network := postgres.target(t).behindProxy(t)
		warm(t, store)
		inside := func(request []byte) bool { return bytes.Contains(request, []byte(`"first"`)) }
		paused := network.OnRequest(inside, func(c *proxy.Conn) {
			c.Hold()
			time.AfterFunc(4*time.Second, c.Deliver)
		})
		grants, err := store.AcquireAll(within(t), []driver.Request{request("first"), request("second")})
		if err != nil {
			t.Fatalf("AcquireAll in a transaction that was idle: %v", err)
		}
		if !isClosed(paused) {
			t.Error("no statement was late")
		}
		release(t, store, grants...)
	})
}
