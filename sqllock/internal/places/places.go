// Package places remembers the places in queues that a store wrote recently, so that a single
// waiter renews the places of all.
//
// A place lasts for one TTL after the last attempt of its owner, and waiters try again about
// every third of a TTL to keep it. If each waiter wrote its own place, a crowd of waiters
// would keep the one writer of SQLite busy until places lapse.
package places

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

const (
	// A place is due when it was written as of an attempt that is a quarter of a TTL
	// ago, and no places were written for an eighth.
	due    = 4
	pause  = 8
	urgent = 2 // a place that was written half a TTL ago does not wait for others

	// maxPlaces bounds what is remembered. A place that is forgotten is taken again.
	maxPlaces = 10_000
)

// place is a place in the queue, as this store wrote it last.
type place struct {
	name      string
	ttl       time.Duration
	attempted time.Time // the owner's last attempt
	written   time.Time // the attempt as of which the place was written last
}

// lapsed reports whether the place has probably expired.
func (p *place) lapsed(now time.Time) bool { return now.Sub(p.written) >= p.ttl }

// Recent remembers places by owner. The zero value is empty.
type Recent struct {
	mu      sync.Mutex
	places  map[string]*place
	renewed time.Time     // when a renewal last began
	renewal chan struct{} // is closed when the renewal under way ends; nil if there is none
}

// State is what an attempt has to do about the place of its owner.
type State int

// The states of a place.
const (
	Missing State = iota // take a place
	Young                // nothing
	Old                  // renew it, with all the others
)

// Attempt notes an attempt of owner and returns what it has to do about its place.
func (r *Recent) Attempt(owner string) State {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.places[owner]
	if own == nil || own.lapsed(now) {
		return Missing
	}
	own.attempted = now
	switch age := now.Sub(own.written); {
	case age < own.ttl/due:
		return Young
	case age < own.ttl/urgent && (r.renewal != nil || now.Sub(r.renewed) < own.ttl/pause):
		return Young
	}
	return Old
}

// Add notes that owner has just taken or kept a place.
func (r *Recent) Add(name, owner string, ttl time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places == nil || len(r.places) >= maxPlaces {
		r.places = make(map[string]*place)
	}
	r.places[owner] = &place{name: name, ttl: ttl, attempted: now, written: now}
}

// Remove forgets the place of owner.
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
	Left time.Duration // of the TTL, since the attempt
	at   time.Time     // the attempt
}

// Collect returns the places whose owners made an attempt since their places were written,
// in the order in which all writers lock rows.
func (r *Recent) Collect() (all []Renewal) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for owner, own := range r.places {
		switch {
		case own.lapsed(now):
			delete(r.places, owner)
		case own.attempted.After(own.written):
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
			own.written = a.at
		default:
			delete(r.places, a.Owner)
		}
	}
}
