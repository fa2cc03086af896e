package dlock

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// rivals are the other processes that want the same lock, as far as refusals tell.
// All of them are woken at once, and how stores and machines do that favours
// some of them every time. So whoever knows of one that has not had the lock since
// it had it itself lets that one come first: they take turns.
type rivals struct {
	known []rival
}

type rival struct {
	who    driver.Holder
	served bool // it has had the lock since this process had
	missed int  // how many times in a row it has not
}

const (
	// maxRivals is for how many taking turns is worth it.
	maxRivals = 64
	// maxMissed is after how many times a rival seems not to want the lock any more.
	maxMissed = 4
	// unknown is one in how many times a process that had the lock just recently lets
	// those come first that it does not know of, because they never were.
	unknown  = 16
	recently = 250 * time.Millisecond
)

// saw: another process has the lock. Those that do not say who they are count as one.
func (r *rivals) saw(who driver.Holder) {
	who.Note = ""
	for i := range r.known {
		if r.known[i].who == who {
			r.known[i].served, r.known[i].missed = true, 0
			return
		}
	}
	if len(r.known) < maxRivals {
		r.known = append(r.known, rival{who: who, served: true})
	}
}

// had: this process has the lock, and the others come before it does again.
func (r *rivals) had() {
	kept := r.known[:0]
	for _, one := range r.known {
		if !one.served {
			one.missed++
		}
		one.served = false
		if one.missed < maxMissed {
			kept = append(kept, one)
		}
	}
	r.known = kept
}

// none says that nobody else seems to want the lock.
func (r *rivals) none() bool { return len(r.known) == 0 }

// first says that it is nobody else's turn.
func (r *rivals) first() bool {
	for i := range r.known {
		if !r.known[i].served {
			return false
		}
	}
	return true
}

// giveWay pauses before an attempt of a waiter that was woken, if it is the turn of
// others.
func (w *wait) giveWay(held *driver.HeldError) error {
	way := w.client.rhythm.way
	if way == 0 || w.hold.queues() {
		return nil
	}
	t := &w.state().turn
	if t.rivals.first() {
		had := t.left != 0 && w.client.clock.NoLaterThanNow()-t.left < recently
		if !had || rand.N(unknown) != 0 {
			return nil
		}
	}
	return w.sleep(backoff.Jitter(way), held)
}
