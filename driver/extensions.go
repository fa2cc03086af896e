package driver

import (
	"context"
	"iter"
	"time"
)

// Watcher is implemented by stores that notify waiters. The waiters of other stores poll.
type Watcher interface {
	// Watch calls wake whenever another Acquire of req may succeed: the name
	// was released or broken, or a fair waiter moved to the head of the queue. A waiter that
	// is not fair is also woken when fair waiters begin to queue, or when the first of them
	// is served, so that it finds out by HeldError.Queued.
	// After Watch has returned, no such moment is missed unless the connection
	// to the store is lost. A needless call of wake is harmless. With
	// Traits.WatchesExpiry, Watch also calls wake when the lock expires, and
	// after a lost connection was re-established.
	//
	// wake does not block. Watch may call it from any goroutine, but not after
	// stop has returned. The context bounds the subscribing, not the
	// subscription.
	Watch(ctx context.Context, req Request, wake func()) (stop func(), err error)
}

// BatchAcquirer is implemented by stores that can grant several names in one
// atomic step.
type BatchAcquirer interface {
	// AcquireAll acquires all requests or none, 500 at most. The names are distinct, and the
	// grants are in the order of the requests. If a name is held, the error is a
	// [*HeldError] for it, preferably for the first such name.
	// If the store cannot acquire these names atomically, because they are on
	// different servers, it does nothing and returns an error that wraps
	// [ErrUnsupported].
	AcquireAll(ctx context.Context, reqs []Request) ([]Grant, error)
}

// Downgrader is implemented by stores with Traits.Shared.
type Downgrader interface {
	// Downgrade makes the exclusive lock of grant.Owner a shared one, in one atomic step,
	// and notifies the waiters. Token and TTL stay. A lock that is shared already stays as
	// it is. [ErrNotHeld] means that the owner does not hold the lock.
	Downgrade(ctx context.Context, grant Grant) error
}

// Lister is implemented by stores that can enumerate the locks that are held.
type Lister interface {
	// List yields every holder of every lock whose name starts with prefix once, in no
	// particular order. It is not a snapshot. A non-nil error is the last
	// element.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Info describes a holder of a lock.
type Info struct {
	Name      string
	Mode      Mode
	Token     uint64
	Holder    Holder
	Since     time.Time     // when it was granted, by the store's clock; zero if unknown
	Remaining time.Duration // until it expires unless it is renewed
	// Waiters counts the waiters as far as the store knows them: every fair waiter and, where the
	// store can tell, about one for each process that waits or waited a moment ago. Zero if unknown.
	Waiters int
}

// Finder is implemented by stores that can find one lock faster than by listing.
type Finder interface {
	// Find describes the lock of name as List does. If it has several holders, Find
	// describes the one with the smallest token. It returns false if the lock is not held.
	Find(ctx context.Context, name string) (Info, bool, error)
}

// Breaker is implemented by stores that can revoke a lock.
type Breaker interface {
	// Break ends the grant of name that has this token, in one atomic step, and notifies
	// the waiters. Any token of the grant will do. Other holders keep the lock. Without such
	// a grant Break returns [ErrNotHeld].
	Break(ctx context.Context, name string, token uint64) error
}

// Locator is implemented by stores that can say where their locks are.
type Locator interface {
	// Location is zero if the store was made of a client and not of a URL.
	Location() Location
}

// Location is where the locks of a store are, without secrets.
type Location struct {
	URL      string // for people, without defaults
	Identity string // the same for all URLs of the same locks, and no others
}

// Diagnoser is implemented by stores that can examine their configuration.
type Diagnoser interface {
	// Diagnose reports configuration that is missing or weakens the promises of
	// Traits. It returns an error only if it cannot reach the store.
	Diagnose(ctx context.Context) ([]Finding, error)
}

// Finding is one result of a diagnosis.
type Finding struct {
	Check   string `json:"check"`   // a short stable name: "journal_mode"
	Level   Level  `json:"level"`   // how bad it is
	Message string `json:"message"` // what was found, and what to do about it

	// Breaks is the promise that the store does not keep in this configuration;
	// empty if it keeps all of them.
	Breaks Promise `json:"breaks,omitempty"`
}

// Promise is a property that users rely on.
type Promise string

// The promises that a Finding may break.
const (
	PromiseExclusion Promise = "exclusion" // a name has no two holders that exclude each other
	PromiseRestart   Promise = "restart"   // Traits.SurvivesRestart
	PromiseFailover  Promise = "failover"  // Traits.SurvivesFailover
)

// Level grades a Finding.
type Level string

// The levels of a Finding.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // works, but promises less than it could
	LevelProblem Level = "problem" // locks do not work, or cannot be trusted
)
