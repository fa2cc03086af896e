package sqlservers

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// TestTokenThatCannotRise: a row whose token is the largest number grants no lock, and the error says which
// row it is.
func TestTokenThatCannotRise(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		store := s.open(t)
		release(t, store, acquire(t, store, "x")...)
		run(t, s.admin(t), "UPDATE dlock_locks SET token = "+strconv.Itoa(math.MaxInt64))
		_, alone := store.Acquire(within(t), request("x"))
		_, all := store.AcquireAll(within(t), []driver.Request{request("x"), request("y")})
		reader := request("x")
		reader.Mode = shared
		_, read := store.Acquire(within(t), reader)
		for what, err := range map[string]error{"Acquire": alone, "AcquireAll": all, "a shared Acquire": read} {
			if !errors.Is(err, driver.ErrMisconfigured) || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "dlock_locks") {
				t.Errorf("%s: %v; want ErrMisconfigured with the name of the table", what, err)
			}
		}
		for info, err := range store.List(within(t), "") {
			t.Errorf("afterwards %+v is held, %v", info, err)
		}
		release(t, store, acquire(t, store, "y")...)
	})
}
