package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// TestCancelStorm: calls that share transactions are cancelled at random moments. The end of
// one caller's context fails no other call, two owners never hold a lock at once, and a
// release with the owner alone leaves nothing.
func TestCancelStorm(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	stores := []*sqllock.Store{openStore(t, path), openStore(t, path)}
	const workers, turns, names = 24, 15, 4
	var holders [names]sync.Mutex // of the callers that know that they hold the lock
	var work sync.WaitGroup
	for i := range workers {
		store := stores[i%len(stores)]
		work.Go(func() {
			for range turns {
				n := rand.IntN(names)
				req := request(fmt.Sprintf("name/%d", n))
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
				grant, err := store.Acquire(ctx, req)
				cancel()
				switch {
				case err == nil:
					if !holders[n].TryLock() {
						t.Errorf("%q was granted while it was held", req.Name)
						return
					}
					mustRenew(t, store, grant)
					holders[n].Unlock()
				case errors.Is(err, driver.ErrHeld), errors.Is(err, context.DeadlineExceeded):
				default:
					t.Errorf("acquire: %v", err)
				}
				err = store.Release(context.Background(), driver.Grant{Name: req.Name, Owner: req.Owner})
				if err != nil && !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	work.Wait()
	for _, store := range stores {
		for info, err := range store.List(t.Context(), "") {
			t.Errorf("left behind: %+v, %v", info, err)
		}
	}
}
