package sqlservers

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// mustBeMisconfigured makes attempts for new and known names, in all ways to take a lock. They fail
// because of the tables, and not as if another owner had the lock, or the server did not answer.
func mustBeMisconfigured(t *testing.T, store *sqllock.Store, name, says string) {
	t.Helper()
	_, alone := store.Acquire(within(t), request(name))
	_, all := store.AcquireAll(within(t), []driver.Request{request(name), request("another")})
	_, read := store.Acquire(within(t), requestIn(shared, name))
	for what, err := range map[string]error{"Acquire": alone, "AcquireAll": all, "a shared Acquire": read} {
		isOther := errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUnreachable)
		if !errors.Is(err, driver.ErrMisconfigured) || isOther || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want ErrMisconfigured that says %q", what, err, says)
		}
	}
	for info, err := range store.List(within(t), "") {
		t.Errorf("afterwards %+v is held, %v", info, err)
	}
}

// TestMissingFloor: without the row at which tokens begin no new name can be locked.
func TestMissingFloor(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store := s.open(t)
		run(t, s.admin(t), "DELETE FROM dlock_meta WHERE value = 0") // of a new store
		mustBeMisconfigured(t, store, "new", "floor")
	})
}

// TestTokenThatCannotRise: a row whose token is the largest number grants no lock, and the error says which
// row it is.
func TestTokenThatCannotRise(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store := s.open(t)
		release(t, store, acquire(t, store, "x")...)
		run(t, s.admin(t), "UPDATE dlock_locks SET token = "+strconv.Itoa(math.MaxInt64))
		mustBeMisconfigured(t, store, "x", "dlock_locks")
		release(t, store, acquire(t, store, "y")...)
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
