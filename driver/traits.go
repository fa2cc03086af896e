package driver

import "time"

// Traits are facts about a store, the same for every lock in it.
type Traits struct {
	// Store names the kind of store in a word or two: "memory", "sqlite".
	Store string

	// Fencing says when the order of tokens can be relied on.
	Fencing Fencing

	// TokenStep is how many tokens every grant has: Grant.Token and the tokens after it, one for
	// each lease that shares the grant or takes it over. Every later grant of the name has a larger
	// token than all of them. Zero stands for one.
	TokenStep uint64

	// Fair says that the store honours Request.Fair.
	Fair bool

	// Shared says that the store honours Mode.Shared and is a [Downgrader].
	Shared bool

	// Limits says that the store honours Mode.Limit.
	Limits bool

	// Queues says that waiters have places in the store's queue, and that
	// Request.Queue also has a meaning without Request.Fair. A place lasts for as long as
	// the waiter's watch, so that the waiter need not try again to keep it.
	Queues bool

	// WatchesExpiry says that Watch also notifies when the lock expires, so
	// that a waiter need not try at that moment by itself.
	WatchesExpiry bool

	// SessionBound says that a lock ends with the store's session or connection:
	// Close ends the locks that were acquired through it.
	SessionBound bool

	// ReportsLoss says that the store calls Request.Lost. dlock does not set
	// Lost for other stores. A store with SessionBound reports losses.
	ReportsLoss bool

	// OneMachine says that locks exclude only processes of one machine: there is
	// no server that other machines could reach.
	OneMachine bool

	// Local says that calls return without waiting for anything outside the
	// process, so that dlock need not bound them in time.
	Local bool

	// Reaction is about how long it takes from a release until a waiter in another
	// process has the lock. dlock derives the length of time slices and of the pauses
	// between them from it. Zero means unknown. A store whose Watch polls less often than
	// every 10 ms sets half of its poll interval. If Reaction is more than 5 ms, dlock assumes
	// that Watch polls, and its waiters also poll while the lock changes hands often. Without
	// a [Watcher], dlock polls and does not use it.
	Reaction time.Duration

	// MinTTL and MaxTTL limit Request.TTL. A zero MaxTTL stands for the constant
	// MaxTTL.
	MinTTL, MaxTTL time.Duration

	// Granularity is the step in which the store counts time: it may notice an
	// expiry late by that much, never early.
	Granularity time.Duration

	// SurvivesRestart says that locks and tokens outlive a crash of the
	// store's server or machine, when it is configured as recommended.
	SurvivesRestart bool

	// SurvivesFailover says that locks and tokens outlive the takeover of one
	// server by another. It is false if there is only one server.
	SurvivesFailover bool
}

// MaxTTL is the longest TTL of any store: ten years. Adding it to a time overflows
// in no unit.
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
	// FencingNone: tokens may repeat or decrease.
	FencingNone Fencing = iota
	// FencingClockBound: tokens rise, also after the store lost its data, as
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

// MarshalText encodes the grade as a word in JSON.
func (f Fencing) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
