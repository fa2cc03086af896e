package sqlite

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// TestTokenThatCannotRise: a row whose token is the largest number grants no lock, and the error says which
// row it is. The same holds for the floor, at which the tokens of new names begin.
func TestTokenThatCannotRise(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ change, spared string }{
		"row":   {`UPDATE dlock_locks SET token = %d WHERE name = 'x'`, "y"},
		"floor": {`DELETE FROM dlock_locks WHERE name = 'x'; UPDATE dlock_meta SET value = %d WHERE key = 'floor'`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path := tempFile(t)
			store := openStore(t, path)
			mustRelease(t, store, mustAcquire(t, store, request("x")))
			run(t, openDB(t, path), fmt.Sprintf(c.change, math.MaxInt64))
			fair, reader := request("x"), request("x")
			fair.Fair = true
			reader.Mode = driver.Mode{Shared: true}
			for _, req := range []driver.Request{request("x"), fair, reader} {
				_, alone := store.Acquire(t.Context(), req)
				_, all := store.AcquireAll(t.Context(), []driver.Request{req, request("z")})
				for _, err := range []error{alone, all} {
					if !errors.Is(err, driver.ErrMisconfigured) || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "dlock_locks") {
						t.Errorf("fair %v, shared %v: %v; want ErrMisconfigured with the name of the table", req.Fair, req.Mode.Shared, err)
					}
				}
			}
			for info, err := range store.List(t.Context(), "") {
				t.Errorf("afterwards %+v is held, %v", info, err)
			}
			if c.spared != "" {
				mustRelease(t, store, mustAcquire(t, store, request(c.spared)))
			}
		})
	}
}
