package quorum_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
)

// TestQuorumOffersNoModes: members with shared locks and semaphores do not make a quorum that has
// them.
func TestQuorumOffersNoModes(t *testing.T) {
	s, err := quorum.New(stores(3), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if traits := s.Traits(); traits.Shared || traits.Limits {
		t.Fatalf("Shared %v, Limits %v; want neither", traits.Shared, traits.Limits)
	}
	c := dlock.New(s, nil)
	defer c.Close()
	for name, opt := range map[string]dlock.Option{"shared": dlock.WithShared(), "a permit": dlock.WithLimit(2)} {
		if _, err := c.Lock(t.Context(), "x", opt); !errors.Is(err, dlock.ErrUnsupported) {
			t.Errorf("%s: %v; want ErrUnsupported", name, err)
		}
	}
}

// TestModeOfAMinorityIsNotThatOfTheQuorum: one member refuses a name that is in use there as a
// semaphore, and the others do not answer: they may have granted it. If a majority refuses it, the
// error is a *ModeError.
func TestModeOfAMinorityIsNotThatOfTheQuorum(t *testing.T) {
	for refusing := 1; refusing <= 2; refusing++ {
		synctest.Test(t, func(t *testing.T) {
			all := fakeMembers(3)
			s := open(t, all)
			settle(t, s)
			for i, c := range all {
				if i >= refusing {
					c.set(mute)
					continue
				}
				permit := request("x", time.Hour)
				permit.Mode.Limit = 2
				mustAcquire(t, c.server, permit)
			}
			_, err := s.Acquire(t.Context(), request("x", time.Minute))
			mode, ok := errors.AsType[*driver.ModeError](err)
			switch {
			case refusing == 1 && (ok || driver.Unchanged(err) || !errors.Is(err, driver.ErrUnreachable)):
				t.Errorf("one member refuses, two do not answer: want ErrUnreachable and not ErrMode, got: %v", err)
			case refusing == 2 && (!ok || mode.Name != "x" || mode.Mode.Limit != 2 || errors.Is(err, driver.ErrUnreachable)):
				t.Errorf("two members refuse: want a *ModeError, got: %v", err)
			}
		})
	}
}
