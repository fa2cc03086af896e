package redlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// TestRenewCallsEachMemberOnce: each member gets one call, whatever the number of locks, and none for no lock.
func TestRenewCallsEachMemberOnce(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
		var grants []driver.Grant
		for i := range 1000 {
			grants = append(grants, mustAcquire(t, s, request(fmt.Sprint(i), time.Minute)))
		}
		synctest.Wait()
		for _, list := range [][]driver.Grant{nil, grants} {
			mustRenew(t, s, list...)
			synctest.Wait()
		}
		for i, c := range all {
			if n := c.count("Renew"); n != 1 {
				t.Errorf("member %d was called %d times to renew 1000 locks", i+1, n)
			}
			if n := c.count("Acquire"); n != 1000 {
				t.Errorf("member %d was asked %d times for 1000 locks", i+1, n)
			}
		}
	})
}

// denying is a member that does not let the user renew one name, and does not answer for others.
type denying struct{ *fakeMember }

func (denying) Renew(_ context.Context, grants []driver.Grant) (errs []error) {
	for _, grant := range grants {
		if grant.Name == "denied" {
			errs = append(errs, driver.ErrDenied)
		} else {
			errs = append(errs, errRefused)
		}
	}
	return errs
}

// TestRenewalsHaveTheirOwnErrors: the error of one lock is not that of another in the same call.
func TestRenewalsHaveTheirOwnErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		s := start(t, []master.Store{all[0], denying{all[1]}, denying{all[2]}})
		names := []string{"x", "denied", "y"}
		var grants []driver.Grant
		for _, name := range names {
			grants = append(grants, mustAcquire(t, s, request(name, time.Minute)))
		}
		synctest.Wait()
		errs := s.Renew(t.Context(), grants)
		for i, name := range names {
			if errors.Is(errs[i], driver.ErrDenied) != (name == "denied") || errors.Is(errs[i], driver.ErrUnreachable) != (name != "denied") {
				t.Errorf("Renew of %q: %v", name, errs[i])
			}
		}
	})
}
