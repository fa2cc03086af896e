package driver

import "time"

// Traits are facts about a store, the same for every lock in it.
type Traits struct {
	// Store names the kind of store in a word or two: "memory", "sqlite".
	Store string

	// Fencing says when the order of tokens can be relied upon.
	Fencing Fencing

	// Fair says that Request.Fair is honoured.
	Fair bool

	// Queues says that whoever waits has a place in the store's queue, and that
	// Request.Queue means something without Request.Fair too.
	Queues bool

	// WatchesExpiry says that a Watch also wakes when the lock expires, so
	// that a waiter need not try by itself at that moment.
	WatchesExpiry bool

	// SessionBound says that locks live no longer than the store's session or
	// connection: Close gives up those that were acquired through it.
	SessionBound bool

	// ReportsLoss says that the store calls Request.Lost. Other stores never
	// see it.
	ReportsLoss bool

	// SplitVotes says that those who ask for a free lock at the same moment may
	// all be refused, because each of them got a part of it. The [*HeldError]
	// then names nobody, and its Remaining is a random time after which trying
	// again is worth it. Who asks alone is never refused a free lock.
	SplitVotes bool

	// OneMachine says that locks exclude processes of one machine only: there is
	// no server that others could reach.
	OneMachine bool

	// Local says that calls return without waiting for anything outside the
	// process, so that dlock need not bound them in time.
	Local bool

	// Handover is about how long it takes from a release until a waiter in another
	// process has the lock: with a store that wakes nobody, half the time between
	// two looks. A process keeps a lock that many of its goroutines want for some
	// times as long, and then lets others have it first for about as long. Zero is
	// unknown.
	Handover time.Duration

	// MinTTL and MaxTTL limit Request.TTL. MaxTTL zero means the package's MaxTTL.
	MinTTL, MaxTTL time.Duration

	// Granularity is the step in which the store counts time: an expiry may
	// be seen late by that much, never early.
	Granularity time.Duration

	// SurvivesRestart says that locks and tokens outlive a crash of the
	// store's server or machine, when it is configured as recommended.
	SurvivesRestart bool

	// SurvivesFailover says that they outlive the takeover of one server by
	// another. False where there is only one.
	SurvivesFailover bool
}

// MaxTTL is the longest TTL of any store: ten years. It leaves room for adding a
// TTL to a time in every unit.
const MaxTTL = 10 * 365 * 24 * time.Hour

// LongestTTL returns the longest TTL that a store with these traits accepts.
func (t *Traits) LongestTTL() time.Duration {
	if t.MaxTTL > 0 {
		return min(t.MaxTTL, MaxTTL)
	}
	return MaxTTL
}

// Fencing grades the order of a store's tokens.
type Fencing int

const (
	// FencingNone: tokens may repeat or fall.
	FencingNone Fencing = iota
	// FencingClockBound: tokens rise, and keep rising after data was lost as
	// long as the store's clock did not step back.
	FencingClockBound
	// FencingStrong: tokens rise for as long as the store keeps its data.
	FencingStrong
)

func (f Fencing) String() string {
	switch f {
	case FencingStrong:
		return "strong"
	case FencingClockBound:
		return "clock-bound"
	default:
		return "none"
	}
}

// MarshalText makes Fencing a word in JSON.
func (f Fencing) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
