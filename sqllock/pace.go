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

	// minGap, and ten times what the last look took, are between two looks:
	// a busy database costs a waiting process a tenth of a core at most.
	minGap    = time.Millisecond
	costShare = 10
)

// pace decides when to look at the database again.
type pace struct {
	told    bool          // changes are told
	next    time.Time     // when to look
	pending bool          // a change asks for a look that has not been made
	follow  time.Duration // the distance to the next look that follows a change; zero if none
	free    time.Time     // no look before
}

// changed: somebody wrote.
func (p *pace) changed(now time.Time) {
	p.pending = true
	p.follow = firstFollow
	p.soon(now)
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
func (p *pace) looked(start, end time.Time, expiry time.Duration, err error) {
	p.pending = false
	p.free = end.Add(max(minGap, costShare*end.Sub(start)))
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
	if expiry > 0 {
		wait = min(wait, expiry)
	}
	p.next = end.Add(wait)
	if p.next.Before(p.free) {
		p.next = p.free
	}
}

// idle: there is nothing to look at.
func (p *pace) idle(now time.Time) {
	p.pending = false
	p.follow = 0
	p.next = now.Add(linger)
}
