package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// use uses n connections of a pool, until the function that it returns is called.
func use(t testing.TB, db *sql.DB, n int) (free func()) {
	t.Helper()
	var conns []*sql.Conn
	for range n {
		conn, err := db.Conn(within(t))
		check(t, err)
		conns = append(conns, conn)
	}
	return func() {
		for _, conn := range conns {
			check(t, conn.Close())
		}
	}
}

// TestProgramUsesItsPool: a program that uses all connections of its pool does not keep the store from
// renewing, unless the pool is small. What fails because of it says so.
func TestProgramUsesItsPool(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, most := range []int{1, 2, 4} {
			t.Run(fmt.Sprint(most), func(t *testing.T) {
				t.Parallel()
				db, opts, err := d.target(t, fmt.Sprint("max_open=", most)).newPool()
				check(t, err)
				closeAfter(t, db)
				store, err := sqllock.New(t.Context(), db, opts)
				check(t, err)
				closeAfter(t, store)
				grants := acquire(t, store, "exclusive", "second")
				for _, mode := range []driver.Mode{shared, two} {
					grant, err := store.Acquire(within(t), requestIn(mode, fmt.Sprint(mode)))
					check(t, err)
					grants = append(grants, grant)
				}
				mustRenew(t, store, grants...)
				kept := 0 // by the store
				if most >= 4 {
					kept = 1
				}
				free := use(t, db, most-kept)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				saysWhy := func(what string, err error) {
					t.Helper()
					if want := fmt.Sprintf("no free connection: %d of %d are in use", most, most); !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), want) {
						t.Errorf("%s without a connection: %v; want ErrUnreachable and %q", what, err, want)
					}
				}
				switch errs := store.Renew(ctx, grants); {
				case kept == 0:
					saysWhy("Renew", errors.Join(errs...))
				case errs != nil:
					t.Errorf("Renew while the program uses its pool: %v", errs)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				_, err = store.Acquire(ctx, request("other"))
				saysWhy("Acquire", err)
				free()
				mustRenew(t, store, grants...)
				release(t, store, grants...)
			})
		}
	})
}

// TestReserveDies: a connection that the store keeps for renewals and that the server ends fails no renewal.
func TestReserveDies(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.target(t, "max_open=4")
		store := s.open(t)
		grants := acquire(t, store, "x", "y")
		for range 2 {
			mustRenew(t, store, grants...)
			check(t, s.kill(t.Context(), s.admin(t)))
		}
		release(t, store, grants...)
	})
}

// TestReserveHangs: a renewal ends with its context, also if the COMMIT on the connection that the store keeps
// for renewals gets no answer, and the next one takes another connection.
func TestReserveHangs(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		store, network := d.target(t, "max_open=4").behindProxy(t)
		grant, err := store.Acquire(within(t), requestIn(shared, "x"))
		check(t, err)
		grants := []driver.Grant{grant}
		mustRenew(t, store, grants...)
		hung := abandon(t, network, isCommit, func(ctx context.Context) error {
			return errors.Join(store.Renew(ctx, grants)...)
		})
		defer hung.Deliver()
		mustRenew(t, store, grants...)
	})
}
