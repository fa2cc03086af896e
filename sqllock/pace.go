package sqllock

import "time"

const (
	// toldInterval is between two looks when nothing happens and changes are
	// told; untoldInterval when they are not.
	toldInterval   = time.Second
	untoldInterval = 250 * time.Millisecond

	// A change is told when it is written and seen when it is committed, which
	// the disk decides. So looks follow it at growing distances.
	firstFollow = time.Millisecond
	lastFollow  = 128 * time.Millisecond

	// Looks may take a tenth of the time, so that a busy database costs a
	// waiting process a tenth of a core. What they take beyond that is a debt;
	// a small one is fine, and one that is due to a look that had to wait
	// itself must not delay the others for long.
	costShare = 10
	fineDebt  = 20 * time.Millisecond
	maxDebt   = 30 * time.Millisecond
	minGap    = time.Millisecond
)

// pacer decides when to look at the database again.
type pacer interface {
	due() time.Time                                     // when to look
	waiting() bool                                      // a change asks for a look that has not been made
	changed(now time.Time)                              // somebody wrote
	asked(now time.Time)                                // somebody in this process wants a look
	looked(start, end time.Time, seen sight, err error) // a look was made
	idle(now time.Time)                                 // there is nothing to look at
}

// pace is for a file, where whoever writes is seen at once and a look costs
// this machine.
type pace struct {
	told    bool          // changes are told
	next    time.Time     // when to look
	pending bool          // a change asks for a look that has not been made
	follow  time.Duration // the distance to the next look that follows a change; zero if none
	free    time.Time     // no look before
	last    time.Time     // when the last look was over
	cost    time.Duration // what it took
	debt    time.Duration // what looks took too much, as of last
}

func (p *pace) due() time.Time { return p.next }

func (p *pace) waiting() bool { return p.pending }

// changed: somebody wrote. The commit comes a little later, so that a look that
// is not cheap waits for it.
func (p *pace) changed(now time.Time) {
	p.pending = true
	p.follow = firstFollow
	p.soon(now.Add(min(p.cost, firstFollow)))
}

// asked: somebody in this process wants a look.
func (p *pace) asked(now time.Time) { p.soon(now) }

func (p *pace) soon(now time.Time) {
	if now.Before(p.free) {
		now = p.free
	}
	if now.Before(p.next) {
		p.next = now
	}
}

// looked: a look was made that took from start to end. An expiry that is not
// zero deserves a look of its own.
func (p *pace) looked(start, end time.Time, seen sight, err error) {
	p.pending = false
	p.cost = end.Sub(start)
	paid := end.Sub(p.last) / costShare
	p.debt = min(max(p.debt-paid, 0)+p.cost, maxDebt)
	p.last = end
	p.free = end.Add(max(minGap, costShare*(p.debt-fineDebt)))
	wait := toldInterval
	switch {
	case !p.told || err != nil:
		wait = untoldInterval
	case p.follow > lastFollow:
		p.follow = 0
	}
	if p.follow > 0 {
		wait = min(wait, p.follow)
		p.follow *= 2
	}
	if seen.expiry > 0 {
		wait = min(wait, seen.expiry)
	}
	p.next = end.Add(wait)
	if p.next.Before(p.free) {
		p.next = p.free
	}
}

// idle: there is nothing to look at, and somebody may come yet.
func (p *pace) idle(now time.Time) {
	p.pending = false
	p.follow = 0
	p.next = now.Add(linger)
}
