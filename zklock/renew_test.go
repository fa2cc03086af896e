package zklock

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// hold makes a claim the holder of the node with that czxid.
func hold(t *testing.T, s *Store, czxid uint64) driver.Grant {
	t.Helper()
	c := s.enter(claimKey{"x", driver.NewOwner()}, true)
	defer s.leave(c)
	if !s.own(c, single, s.liveSession(), czxid, 0, s.clock.Now()) {
		t.Fatal("there is no session")
	}
	grant, err := s.grant(c, &driver.Request{TTL: time.Minute}, position{first: true})
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

// TestHoldersLookAgain: a holder looks at its node once for each connection, and so finds
// out that it was removed, also if nobody tells.
func TestHoldersLookAgain(t *testing.T) {
	server := runFake(t)
	s := openFake(t, server)
	const mine, anothers = 7, 8
	server.set(mine)
	grant := hold(t, s, mine)
	renew := func() error {
		t.Helper()
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			return errs[0]
		}
		return nil
	}
	for connection := 1; connection <= 3; connection++ {
		for range 2 {
			if err := renew(); err != nil {
				t.Fatalf("connection %d: %v", connection, err)
			}
		}
		if n := server.lookedAt(); n != connection {
			t.Errorf("looked at %d times on %d connections", n, connection)
		}
		server.hangUp()
	}
	server.set(anothers)
	if err := renew(); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Renew of a lock that another one has: %v", err)
	}
}
