package sqllock

import "time"

const (
	// minTempo is between two looks while locks change hands. Each doubles it
	// that finds that none did, up to maxTempo.
	minTempo = 2 * time.Millisecond
	maxTempo = 100 * time.Millisecond
)

// tempo is for a server, which may tell what became free, and where a look costs
// a round trip. Where it does not tell, looks follow each other faster while
// there is something to see. They take at most half of the time.
type tempo struct {
	told func() bool // whether the server tells; nil if it never does
	next time.Time   // when to look
	free time.Time   // no look before
	gap  time.Duration
}

func (t *tempo) due() time.Time { return t.next }

func (t *tempo) waiting() bool { return false }

// changed: something was missed.
func (t *tempo) changed(now time.Time) { t.asked(now) }

// asked: somebody begins to wait, or wants to know whose turn it is.
func (t *tempo) asked(now time.Time) {
	t.gap = minTempo
	if now.Before(t.free) {
		now = t.free
	}
	if now.Before(t.next) {
		t.next = now
	}
}

func (t *tempo) looked(start, end time.Time, seen sight, err error) {
	t.free = end.Add(max(minTempo, end.Sub(start)))
	switch {
	case err != nil:
		t.gap = maxTempo
	case seen.moving:
		t.gap = minTempo
	default:
		t.gap = min(2*t.gap, maxTempo)
	}
	wait := t.gap
	if err == nil && t.told != nil && t.told() {
		wait = toldInterval
	}
	if seen.expiry > 0 {
		wait = min(wait, seen.expiry)
	}
	t.next = end.Add(wait)
	if t.next.Before(t.free) {
		t.next = t.free
	}
}

func (t *tempo) idle(now time.Time) { t.next = now.Add(linger) }
