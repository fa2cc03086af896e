// Package share has the rules of locks that may have several holders: who excludes whom, and which
// waiter comes first.
package share

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// Share is one holder's part of a lock. Its tokens and times count as the store counts them.
type Share[O comparable] struct {
	Owner   O             `json:"owner"`
	Token   int64         `json:"token"`
	Since   int64         `json:"since"`
	Expires int64         `json:"expires"`
	Holder  driver.Holder `json:"holder"`
}

// Lock is the state of a name. An exclusive share is the only one. A nil lock has no shares.
type Lock[O comparable] struct {
	Mode   driver.Mode // of all shares
	Shares []Share[O]
}

// Expire removes the shares that have expired.
func (l *Lock[O]) Expire(now int64) {
	l.Shares = slices.DeleteFunc(l.Shares, func(s Share[O]) bool { return s.Expires <= now })
}

// Of returns the owner's share, or nil.
func (l *Lock[O]) Of(owner O) *Share[O] {
	if l == nil {
		return nil
	}
	for i := range l.Shares {
		if l.Shares[i].Owner == owner {
			return &l.Shares[i]
		}
	}
	return nil
}

// Excluding returns a share that excludes a new holder with mode, or nil. Of several shares it returns
// the one whose expiry may admit the new holder: of permits the first, of shared ones the last.
func (l *Lock[O]) Excluding(mode driver.Mode) *Share[O] {
	switch {
	case l == nil || len(l.Shares) == 0:
		return nil
	case l.Mode.Limit != mode.Limit:
		return &l.Shares[0]
	case len(l.Shares) < mode.Limit, mode.Shared && l.Mode.Shared:
		return nil
	}
	found := &l.Shares[0]
	for i := range l.Shares {
		if sooner := l.Shares[i].Expires < found.Expires; sooner == (mode.Limit > 0) {
			found = &l.Shares[i]
		}
	}
	return found
}

// Admit adds the share of a new holder, whom no other one excludes.
func (l *Lock[O]) Admit(mode driver.Mode, s Share[O]) *Share[O] {
	l.Mode = mode
	l.Shares = append(l.Shares, s)
	return &l.Shares[len(l.Shares)-1]
}

// Extend makes a share last for the TTL from now on. It never shortens it.
func (s *Share[O]) Extend(now, ttl int64) { s.Expires = max(s.Expires, now+ttl) }

// End ends the share whose token is one of first to last, and reports whether there was one.
func (l *Lock[O]) End(first, last int64) bool {
	if l == nil {
		return false
	}
	before := len(l.Shares)
	l.Shares = slices.DeleteFunc(l.Shares, func(s Share[O]) bool { return first <= s.Token && s.Token <= last })
	return len(l.Shares) < before
}

// Downgrade makes an exclusive share of owner a shared one. It reports whether owner has a share with
// that token that is not a permit. A token of zero stands for any.
func (l *Lock[O]) Downgrade(owner O, token int64) bool {
	if s := l.Of(owner); s == nil || token != 0 && s.Token != token || l.Mode.Limit > 0 {
		return false
	}
	l.Mode.Shared = true
	return true
}

// Place is that of a waiter in the queue of a name.
type Place[O comparable] struct {
	Owner   O
	Mode    driver.Mode
	Fair    bool
	Expires int64
}

// Before returns the place that has to be served before a request, or nil. queue has the places of the
// name in the order of arrival. A shared request gives way to exclusive places, and a permit to those
// that take the last free permit. An exclusive request gives way only if it is fair, to fair places.
func (l *Lock[O]) Before(queue []Place[O], owner O, req *driver.Request) *Place[O] {
	free := req.Mode.Limit // permits
	if l != nil {
		free -= len(l.Shares)
	}
	for i := range queue {
		p := &queue[i]
		switch {
		case p.Owner == owner:
			return nil
		case p.Mode.Limit != req.Mode.Limit: // it is refused until the lock is free
		case req.Mode.Limit > 0:
			if free--; free <= 0 {
				return p
			}
		case req.Mode.Shared && !p.Mode.Shared, req.Fair && p.Fair && !req.Mode.Shared:
			return p
		}
	}
	return nil
}
