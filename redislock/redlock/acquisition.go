package redlock

import (
	"maps"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// acquisition is one vote of an attempt and, if it was granted, the lock.
//
// The members know it by an alias that no other acquisition has. Another vote of the same
// owner is another acquisition, which a late call for the first one does not touch.
type acquisition struct {
	name   string
	owner  driver.Owner // the owner that the Redlock was asked with
	alias  driver.Owner // the owner that the members are asked with
	ttl    time.Duration
	holder driver.Holder

	released bool // by its owner, which must not get the lock any more; Store.mu guards it

	mu          sync.Mutex
	splits      int           // split votes in a row, up to this one
	pausedUntil time.Time     // when the owner may vote again after the last of them
	ended       bool          // released, failed or lost: it is not acquired at a member any more
	token       uint64        // zero until it is granted
	expires     time.Time     // when it has expired, and need not be remembered any more
	members     []memberState // by member
}

// memberState is an acquisition at one member. Attempts, raises and the first release follow one
// another: a Release never overtakes the Acquire that it undoes.
type memberState struct {
	token uint64        // zero until the member has answered the last attempt
	asked bool          // the member got an attempt
	busy  bool          // a call is under way
	queue []func(i int) // the calls that follow
}

func (s *Store) newAcquisition(req *driver.Request) *acquisition {
	return &acquisition{
		name:    req.Name,
		owner:   req.Owner,
		alias:   driver.NewOwner(),
		ttl:     req.TTL,
		holder:  req.Holder,
		expires: time.Now().Add(req.TTL),
		members: make([]memberState, len(s.members)),
	}
}

func (a *acquisition) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// state returns the token, which is zero if the acquisition was not granted, and whether it has ended.
func (a *acquisition) state() (token uint64, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token, a.ended
}

// grant returns the grant for the owner.
func (a *acquisition) grant() driver.Grant {
	token, _ := a.state()
	return driver.Grant{Name: a.name, Owner: a.owner, Token: token, TTL: a.ttl - drift(a.ttl), Handle: a}
}

// aliasGrant returns the grant for the members, without a token. The token is unknown, or not the last, if an
// answer of the member was lost. No other acquisition has the alias.
func (a *acquisition) aliasGrant() driver.Grant {
	return driver.Grant{Name: a.name, Owner: a.alias, TTL: a.ttl}
}

// tokenAt returns the token that member i has, or zero if it is not known.
func (a *acquisition) tokenAt(i int) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.members[i].token
}

func (a *acquisition) noteToken(i int, token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.members[i].token = token
}

// enqueueCall calls f, which calls member i, in the background after all calls that were
// enqueued before.
func (s *Store) enqueueCall(a *acquisition, i int, f func(i int)) {
	a.mu.Lock()
	at := &a.members[i]
	if at.busy {
		at.queue = append(at.queue, f)
		a.mu.Unlock()
		return
	}
	at.busy = true
	a.mu.Unlock()
	s.work.Add(1)
	s.workers.Go(func() {
		defer s.work.Done()
		for busy := true; busy; {
			f(i)
			a.locked(func() {
				if busy = len(at.queue) > 0; busy {
					f, at.queue = at.queue[0], at.queue[1:]
				} else {
					at.busy, at.queue = false, nil
				}
			})
		}
	})
}

// minSweep is the number of acquisitions below which none is searched for.
const minSweep = 1024

// remember makes a the acquisition of its owner, unless the owner has released the previous one of
// the same attempt. Now and then it forgets expired ones.
func (s *Store) remember(a, previous *acquisition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if previous != nil && previous.released {
		return false
	}
	if len(s.acquisitions) >= s.sweepAt {
		now := time.Now()
		maps.DeleteFunc(s.acquisitions, func(_ driver.Owner, old *acquisition) (expired bool) {
			old.locked(func() { expired = now.After(old.expires) })
			return expired
		})
		s.sweepAt = max(minSweep, 2*len(s.acquisitions))
	}
	s.acquisitions[a.owner] = a
	return true
}

func (s *Store) forget(a *acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquisitions[a.owner] == a {
		delete(s.acquisitions, a.owner)
	}
}

// findLocked returns the acquisition of a grant, or nil. It ignores a Handle that was copied from
// the grant of another owner, or comes from a Redlock with more or fewer members.
func (s *Store) findLocked(grant *driver.Grant) *acquisition {
	if a, ok := grant.Handle.(*acquisition); ok && a.owner == grant.Owner && a.name == grant.Name && len(a.members) == len(s.members) {
		return a
	}
	if a := s.acquisitions[grant.Owner]; a != nil && a.name == grant.Name {
		return a
	}
	return nil
}
