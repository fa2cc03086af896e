package sqllock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// A place in the queue lasts for one TTL after the last attempt of its owner, and
// waiters come about every third of a TTL to keep it. If each of them wrote its own
// place, a crowd of waiters would keep the one writer of SQLite busy until places
// lapse. So one waiter writes for all that have come since their places were written.
const (
	// A place is due when it was written as of an attempt that is a quarter of a TTL
	// ago, and no places were written for an eighth.
	placeDue    = 4
	placePause  = 8
	placeUrgent = 2 // a place that was written half a TTL ago does not wait for others
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

// placed remembers who has a place. The zero value is empty. It may forget.
type placed struct {
	mu      sync.Mutex
	places  map[string]*place // by owner
	renewed time.Time         // when a renewal last began
	renewal chan struct{}     // is closed when the renewal under way ends; nil if there is none
}

// placeState is what an attempt has to do about the place of its owner.
type placeState int

const (
	placeMissing placeState = iota // take a place
	placeYoung                     // nothing
	placeOld                       // renew it, with all the others
)

// come notes an attempt of owner and returns what it has to do about its place.
func (p *placed) come(owner string) placeState {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.places[owner]
	if own == nil || own.lapsed(now) {
		return placeMissing
	}
	own.attempted = now
	switch age := now.Sub(own.written); {
	case age < own.ttl/placeDue:
		return placeYoung
	case age < own.ttl/placeUrgent && (p.renewal != nil || now.Sub(p.renewed) < own.ttl/placePause):
		return placeYoung
	}
	return placeOld
}

// add notes that owner has just taken or kept a place.
func (p *placed) add(name, owner string, ttl time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil || len(p.places) >= maxNames {
		p.places = make(map[string]*place)
	}
	p.places[owner] = &place{name: name, ttl: ttl, attempted: now, written: now}
}

func (p *placed) remove(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.places, owner)
}

// begin begins a renewal, or returns the one under way to wait for.
func (p *placed) begin() (underway <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.renewal != nil {
		return p.renewal
	}
	p.renewal, p.renewed = make(chan struct{}), time.Now()
	return nil
}

func (p *placed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.renewal)
	p.renewal = nil
}

// attemptOf is a place that is being renewed.
type attemptOf struct {
	rowKey
	at   time.Time
	left time.Duration // of the TTL, since the attempt
}

// collect returns the places of all who have come since theirs was written, in the order
// in which all writers lock rows.
func (p *placed) collect() (all []attemptOf) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for owner, own := range p.places {
		switch {
		case own.lapsed(now):
			delete(p.places, owner)
		case own.attempted.After(own.written):
			all = append(all, attemptOf{rowKey{own.name, owner}, own.attempted, own.ttl - now.Sub(own.attempted)})
		}
	}
	slices.SortFunc(all, func(a, b attemptOf) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.owner, b.owner))
	})
	return all
}

// settle notes which places were renewed; nil is all. The others are gone.
func (p *placed) settle(all []attemptOf, renewed map[rowKey]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range all {
		own := p.places[a.owner]
		switch {
		case own == nil || own.written.After(a.at):
		case renewed == nil || renewed[a.rowKey]:
			own.written = a.at
		default:
			delete(p.places, a.owner)
		}
	}
}

// keepPlaces renews the places of all who have come, for owner, whose place is due. It
// reports whether owner has one.
func (s *Store) keepPlaces(ctx context.Context, owner string) (kept bool, err error) {
	for {
		switch s.placed.come(owner) {
		case placeYoung:
			return true, nil
		case placeMissing:
			return false, nil
		}
		if underway := s.placed.begin(); underway != nil {
			select {
			case <-underway:
				continue
			case <-ctx.Done():
				return false, s.fail(ctx, "acquire", ctx.Err())
			}
		}
		err := s.renewPlaces(ctx)
		s.placed.end()
		if err != nil {
			return false, err
		}
	}
}

// renewPlaces writes the places of all who have come. It creates none: an owner may
// have left meanwhile.
func (s *Store) renewPlaces(ctx context.Context) error {
	var all []attemptOf
	var renewed map[rowKey]bool
	err := s.together(ctx, "acquire", &job{urgent: true, run: func(ctx context.Context, run runner) error {
		all, renewed = s.placed.collect(), nil
		rows := make([][3]any, len(all))
		for i, a := range all {
			rows[i] = [3]any{a.name, a.owner, millis(a.left)}
		}
		list := encode(rows)
		result, err := run.exec(ctx, keepPlaces, list)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == int64(len(all)) {
			return err
		}
		renewed, err = rowKeys(ctx, run, keptPlaces, list)
		return err
	}})
	if err == nil {
		s.placed.settle(all, renewed)
	}
	return err
}
