// Package places remembers the places in queues that a store wrote recently, so that a single
// waiter renews the places of all.
//
// A place lasts for a driver.PlaceTTL after the last attempt of its owner. If each waiter wrote its own
// place, a crowd of waiters would keep the one writer of SQLite busy until places expire.
package places

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

const (
	renewAfter  = 4 // a place is renewed TTL/4 after the attempt as of which it was written,
	minRenewGap = 8 // but not within TTL/8 of the last renewal,
	mustRenew   = 2 // unless that attempt is TTL/2 ago

	// maxPlaces bounds what is remembered. A place that is forgotten is taken again.
	maxPlaces = 10_000
)

// writtenPlace is a place in the queue, as this store wrote it last.
type writtenPlace struct {
	name      string
	ttl       time.Duration
	attempted time.Time // the owner's last attempt
	written   time.Time // the attempt as of which the place was written last
	unknown   bool      // whether it was written is not known
}

// expired reports whether the place has probably expired.
func (p *writtenPlace) expired(now time.Time) bool { return now.Sub(p.written) >= p.ttl }

// Recent remembers places by their owner. The zero value is empty.
type Recent struct {
	mu      sync.Mutex
	places  map[string]*writtenPlace
	renewed time.Time     // when a renewal last began
	renewal chan struct{} // is closed when the renewal under way ends; nil if there is none
}

// State is what an attempt has to do about its place.
type State int

// The states of a place.
const (
	Missing State = iota // take a place
	Young                // nothing
	Old                  // renew it, with all the others
)

// Attempt notes an attempt and returns what it has to do about its place.
func (r *Recent) Attempt(owner string) State {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.places[owner]
	if own == nil || own.expired(now) {
		return Missing
	}
	own.attempted = now
	switch age := now.Sub(own.written); {
	case own.unknown: // a renewal finds it out
	case age < own.ttl/renewAfter:
		return Young
	case age < own.ttl/mustRenew && (r.renewal != nil || now.Sub(r.renewed) < own.ttl/minRenewGap):
		return Young
	}
	return Old
}

// Add notes that a place was just taken or kept, if err is nil. Otherwise the place may have been taken: Add
// notes that, unless the place is known to exist.
func (r *Recent) Add(name, owner string, ttl time.Duration, err error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if own := r.places[owner]; err != nil && own != nil && !own.expired(now) {
		return
	}
	if r.places == nil || len(r.places) >= maxPlaces {
		r.places = make(map[string]*writtenPlace)
	}
	r.places[owner] = &writtenPlace{name: name, ttl: ttl, attempted: now, written: now, unknown: err != nil}
}

// Has reports whether the place exists, or may exist.
func (r *Recent) Has(owner string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.places[owner]
	return own != nil && !own.expired(time.Now())
}

// Remove forgets a place.
func (r *Recent) Remove(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.places, owner)
}

// Begin begins a renewal, or returns the renewal under way to wait for.
func (r *Recent) Begin() (underway <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewal != nil {
		return r.renewal
	}
	r.renewal, r.renewed = make(chan struct{}), time.Now()
	return nil
}

// End ends the renewal.
func (r *Recent) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.renewal)
	r.renewal = nil
}

// Renewal is a place that is being renewed.
type Renewal struct {
	statement.Key
	Remaining time.Duration // of the TTL, since the attempt
	at        time.Time     // the attempt
}

// Collect returns the places whose owners made an attempt since their places were written, in one
// order, so that deadlocks are rare.
func (r *Recent) Collect() (all []Renewal) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for owner, own := range r.places {
		switch {
		case own.expired(now):
			delete(r.places, owner)
		case own.unknown, own.attempted.After(own.written):
			all = append(all, Renewal{statement.Key{Name: own.name, Owner: owner}, own.ttl - now.Sub(own.attempted), own.attempted})
		}
	}
	slices.SortFunc(all, func(a, b Renewal) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return all
}

// NoteRenewed notes which places were renewed; nil is all. The others are gone.
func (r *Recent) NoteRenewed(all []Renewal, renewed map[statement.Key]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range all {
		own := r.places[a.Owner]
		switch {
		case own == nil || own.written.After(a.at):
		case renewed == nil || renewed[a.Key]:
			own.written, own.unknown = a.at, false
		default:
			delete(r.places, a.Owner)
		}
	}
}
