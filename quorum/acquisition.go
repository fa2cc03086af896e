package quorum

import (
	"cmp"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// acquisition is one attempt to get a lock and, if it was granted, the lock.
//
// The members know it by an alias that no other acquisition has. Another attempt of the same
// owner is another acquisition, which a late call for the first one does not touch.
type acquisition struct {
	name   string
	owner  driver.Owner // the owner that the quorum was asked with
	alias  driver.Owner // the owner that the members are asked with
	ttl    time.Duration
	holder driver.Holder

	mu      sync.Mutex
	splits  int           // split votes in a row, up to this one
	ended   bool          // released, failed or lost: no member is asked for it any more
	token   uint64        // zero until it is granted
	promise time.Duration // the TTL of the grant
	needed  time.Duration // the shortest TTL that the members of the majority promised
	expires time.Time     // when it need not be remembered any more
	at      []memberState // by member
}

// memberState is an acquisition at one member. Its calls to the member follow one another:
// a Release never overtakes the Acquire that it undoes.
type memberState struct {
	token  uint64
	ttl    time.Duration // what the member promised; zero until it granted
	handle any
	asked  bool          // the member got an attempt
	busy   bool          // a call is under way
	queue  []func(i int) // the calls that follow
}

func (s *Store) newAcquisition(req *driver.Request) *acquisition {
	return &acquisition{
		name:    req.Name,
		owner:   req.Owner,
		alias:   driver.NewOwner(),
		ttl:     req.TTL,
		holder:  req.Holder,
		expires: time.Now().Add(req.TTL),
		at:      make([]memberState, len(s.members)),
	}
}

// locked calls f with mu held.
func (a *acquisition) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// grant returns the grant for the owner.
func (a *acquisition) grant() driver.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return driver.Grant{Name: a.name, Owner: a.owner, Token: a.token, TTL: a.promise, Handle: a}
}

// memberGrant returns the grant for member i.
func (a *acquisition) memberGrant(i int) driver.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := &a.at[i]
	return driver.Grant{Name: a.name, Owner: a.alias, Token: at.token, TTL: cmp.Or(at.ttl, a.ttl), Handle: at.handle}
}

// note notes the answer of member i, and returns the token that the lock should have there.
func (a *acquisition) note(i int, grant *driver.Grant, err error) (token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := &a.at[i]
	if err == nil {
		at.token, at.ttl, at.handle = grant.Token, grant.TTL, grant.Handle
	}
	at.asked = at.asked || !errors.Is(err, errStuck)
	return a.token
}

// enqueueCall calls f, which calls member i, in the background after all calls that were
// enqueued before.
func (s *Store) enqueueCall(a *acquisition, i int, f func(i int)) {
	a.mu.Lock()
	at := &a.at[i]
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
		for f != nil {
			f(i)
			f = a.nextCall(i)
		}
	})
}

func (a *acquisition) nextCall(i int) (f func(i int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := &a.at[i]
	if len(at.queue) == 0 {
		at.busy, at.queue = false, nil
		return nil
	}
	f = at.queue[0]
	at.queue = at.queue[1:]
	return f
}

// minSweep is up to how many acquisitions are not searched for expired ones.
const minSweep = 1024

// remember makes a the acquisition of its owner, and forgets expired ones.
func (s *Store) remember(a *acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.acquisitions) >= s.sweepAt {
		now := time.Now()
		maps.DeleteFunc(s.acquisitions, func(_ driver.Owner, old *acquisition) (expired bool) {
			old.locked(func() { expired = now.After(old.expires) })
			return expired
		})
		s.sweepAt = max(minSweep, 2*len(s.acquisitions))
	}
	s.acquisitions[a.owner] = a
}

func (s *Store) forget(a *acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acquisitions[a.owner] == a {
		delete(s.acquisitions, a.owner)
	}
}

// find returns the acquisition of a grant, or nil. It ignores a Handle that was copied from
// the grant of another owner.
func (s *Store) find(grant *driver.Grant) *acquisition {
	if a, ok := grant.Handle.(*acquisition); ok && a.owner == grant.Owner && a.name == grant.Name {
		return a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.acquisitions[grant.Owner]; a != nil && a.name == grant.Name {
		return a
	}
	return nil
}
