package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// duty is what one goroutine of a process does again and again.
type duty struct {
	names  []string // one of them is chosen each time, or two if batch is set
	batch  bool
	fair   bool
	shared bool // in two of three turns
	limit  int
	fixed  bool // not renewed
	ttl    time.Duration
	margin time.Duration // the default if it is zero
	hold   time.Duration // at most
	rest   time.Duration // between two turns, at least
	pause  time.Duration // and at most so much longer
}

// prefix begins the names of all locks of a soak.
const prefix = "soak-"

// wakeNames are locks whose waiters have to be woken, the second one with fair waiters. Their
// TTL is long, so that waiters seldom try by themselves, and a process that released one of them
// leaves it alone for a while.
var wakeNames = named("wake", 2)

const wakeTTL = 6 * time.Second

// hotGoroutines is how many goroutines of a process want each lock that is locked most often. Most
// of them pause at any moment.
const hotGoroutines = 12

func named(kind string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%s-%d", prefix, kind, i))
	}
	return names
}

// duties returns the duties of a client, as far as the store supports them. pace is the longest
// pause of those that lock most often.
func duties(traits driver.Traits, ttl, pace time.Duration) []duty {
	hot, slow, fixed := named("hot", 6), named("slow", 2), named("fixed", 2)
	all := []duty{
		{names: slow, ttl: ttl, hold: ttl * 3 / 2, pause: ttl / 10},
		{names: slow, ttl: ttl, margin: ttl / 5, hold: ttl * 3 / 2, pause: ttl / 10},
		// Many of these are held until they are lost. A client that trusts them for too long has
		// them together with the next holder.
		{names: fixed, fixed: true, ttl: ttl, hold: ttl * 3 / 2, pause: ttl / 10},
		{names: fixed, fixed: true, ttl: ttl, margin: ttl / 5, hold: ttl * 3 / 2, pause: ttl / 10},
		{names: named("batch", 3), batch: true, ttl: ttl, hold: ttl / 20, pause: ttl / 50},
	}
	wake := duty{names: wakeNames[:1], ttl: max(ttl, wakeTTL), hold: 600 * time.Millisecond, rest: time.Second, pause: time.Second}
	all = append(all, wake)
	for _, name := range hot { // the goroutines of a process hand a name over to each other
		all = append(all, slices.Repeat([]duty{{names: []string{name}, ttl: ttl, pause: pace}}, hotGoroutines)...)
	}
	if traits.Fair {
		wake.names, wake.fair = wakeNames[1:], true
		all = append(all, wake, duty{names: named("fair", 1), fair: true, ttl: ttl, hold: ttl / 50, pause: ttl / 50})
	}
	if traits.Shared {
		readers := duty{names: named("read", 1), shared: true, ttl: ttl, hold: ttl / 20, pause: ttl / 20}
		all = append(all, readers, readers)
	}
	if traits.Limits {
		all = append(all, duty{names: named("permit", 1), limit: 2, ttl: ttl, hold: ttl / 20, pause: ttl / 20})
	}
	return all
}

// choose returns the names of the next turn.
func (d duty) choose() []string {
	if !d.batch {
		return []string{d.names[rand.IntN(len(d.names))]}
	}
	order := rand.Perm(len(d.names))
	return []string{d.names[order[0]], d.names[order[1]]}
}

// mode returns the mode of the next turn, and its options.
func (d duty) mode() (mode driver.Mode, opts []dlock.Option) {
	opts = []dlock.Option{dlock.WithTTL(d.ttl)}
	if d.margin > 0 {
		opts = append(opts, dlock.WithMargin(d.margin))
	}
	if d.fixed {
		opts = append(opts, dlock.WithFixedTTL(d.ttl))
	}
	switch {
	case d.fair:
		opts = append(opts, dlock.WithFair())
	case d.limit > 0:
		mode.Limit, opts = d.limit, append(opts, dlock.WithLimit(d.limit))
	case d.shared && rand.IntN(3) > 0:
		mode.Shared, opts = true, append(opts, dlock.WithShared())
	}
	return mode, opts
}
