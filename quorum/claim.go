package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// claim is one attempt to get a lock and, if it was granted, the lock.
//
// The members know it by an alias that no other claim has. Whoever asks again,
// after a failure, does so with another claim: what is still on its way to a member
// for the first one, such as a Release, does not concern the second.
type claim struct {
	name   string
	owner  driver.Owner // whose it is
	alias  driver.Owner // by which the members know it
	ttl    time.Duration
	holder driver.Holder

	mu      sync.Mutex
	split   int           // votes in a row that were split until this one
	over    bool          // released, failed or lost: nothing may be taken for it any more
	token   uint64        // zero until it is granted
	promise time.Duration // the TTL of the grant
	needed  time.Duration // the TTL that the members of the majority promised at least
	expires time.Time     // when it is useless to remember it
	seats   []seat        // one for each member
}

// seat is what there is of a claim at one member. Calls to a member about a claim
// come one after another, in the order in which they were wanted: a Release never
// overtakes the Acquire that it is to undo.
type seat struct {
	token  uint64
	ttl    time.Duration // what the member promised
	handle any
	asked  bool // the member got an attempt
	busy   bool
	queue  []func(i int) // what is to be done when it is not
}

func (s *Store) newClaim(req *driver.Request) *claim {
	c := &claim{
		name:    req.Name,
		owner:   req.Owner,
		alias:   s.rules.alias(req.Owner),
		ttl:     req.TTL,
		holder:  req.Holder,
		expires: time.Now().Add(req.TTL),
		seats:   make([]seat, len(s.members)),
	}
	for i := range c.seats {
		c.seats[i].ttl = req.TTL
	}
	return c
}

// stranger is a claim for a grant that was not made here: there is nothing to know
// about it but what it says itself.
func (s *Store) stranger(grant *driver.Grant) *claim {
	c := s.newClaim(&driver.Request{Name: grant.Name, Owner: grant.Owner, TTL: grant.TTL})
	c.alias = grant.Owner
	for i := range c.seats {
		c.seats[i].asked = true
	}
	return c
}

// grant is what the owner gets.
func (c *claim) grant() driver.Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return driver.Grant{Name: c.name, Owner: c.owner, Token: c.token, TTL: c.promise, Handle: c}
}

// at is the grant of a member. c.mu is held.
func (c *claim) at(i int) driver.Grant {
	seat := &c.seats[i]
	return driver.Grant{Name: c.name, Owner: c.alias, Token: seat.token, TTL: seat.ttl, Handle: seat.handle}
}

// granted notes what member i granted, and returns the token that it should be.
func (c *claim) granted(i int, grant *driver.Grant) (token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seat := &c.seats[i]
	seat.asked, seat.token, seat.ttl, seat.handle = true, grant.Token, grant.TTL, grant.Handle
	return c.token
}

// failed notes that an attempt at member i ended with err.
func (c *claim) failed(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, errSilent) {
		c.seats[i].asked = true
	}
}

// sit calls f, which calls member i, in the background and after everything that
// was wanted there before.
func (s *Store) sit(c *claim, i int, f func(i int)) {
	c.mu.Lock()
	seat := &c.seats[i]
	if seat.busy {
		seat.queue = append(seat.queue, f)
		c.mu.Unlock()
		return
	}
	seat.busy = true
	c.mu.Unlock()
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		c.serve(i, f)
	})
}

// serve calls f, and what was wanted meanwhile. The seat is busy.
func (c *claim) serve(i int, f func(i int)) {
	for f != nil {
		f(i)
		f = c.next(i)
	}
}

func (c *claim) next(i int) (f func(i int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seat := &c.seats[i]
	if len(seat.queue) == 0 {
		seat.busy, seat.queue = false, nil
		return nil
	}
	f = seat.queue[0]
	seat.queue = seat.queue[1:]
	return f
}

// trySit makes the seat at member i busy, unless it is, or the claim is over.
func (c *claim) trySit(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seats[i].busy || c.over {
		return false
	}
	c.seats[i].busy = true
	return true
}

// finish ends a claim: nothing is taken for it from now on.
func (c *claim) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// adjourned notes how many votes were split, for the next attempt of its owner.
func (c *claim) adjourned(splits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.split = splits
}

func (c *claim) splits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.split
}

func (c *claim) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// sweepFloor keeps small numbers of claims from being looked through at all.
const sweepFloor = 1024

// remember makes c the claim of its owner, and forgets what is long over.
func (s *Store) remember(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.claims) >= s.sweepAt {
		now := time.Now()
		for owner, old := range s.claims {
			old.mu.Lock()
			useless := now.After(old.expires)
			old.mu.Unlock()
			if useless {
				delete(s.claims, owner)
			}
		}
		s.sweepAt = max(sweepFloor, 2*len(s.claims))
	}
	s.claims[c.owner] = c
}

// forget is for claims of which nothing is left.
func (s *Store) forget(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.owner] == c {
		delete(s.claims, c.owner)
	}
}

// find returns the claim that a grant is about, or nil. Whoever copied a Handle to
// the grant of another owner gets nothing from it.
func (s *Store) find(grant *driver.Grant) *claim {
	if c, ok := grant.Handle.(*claim); ok && c.owner == grant.Owner && c.name == grant.Name {
		return c
	}
	return s.lookup(grant.Owner, grant.Name)
}

func (s *Store) lookup(owner driver.Owner, name string) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[owner]; c != nil && c.name == name {
		return c
	}
	return nil
}
