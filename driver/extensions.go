package driver

import (
	"context"
	"iter"
	"time"
)

// Watcher is implemented by stores that can tell when trying again is worth it.
// dlock polls the others.
type Watcher interface {
	// Watch calls wake whenever req may have become worth another Acquire: the
	// name was released or broken, or a fair waiter moved to the head. Once
	// Watch has returned no such moment is missed, except where the
	// connection to the store is lost; a wake-up too many is harmless. If
	// Traits.WatchesExpiry, the expiry of the lock counts too, and wake is
	// called after a connection that was lost is there again.
	//
	// wake does not block and may be called from any goroutine, but not
	// after stop has returned. The context bounds the subscribing, not the
	// subscription.
	Watch(ctx context.Context, req Request, wake func()) (stop func(), err error)
}

// BatchAcquirer is implemented by stores that can grant several names in one
// atomic step.
type BatchAcquirer interface {
	// AcquireAll is Acquire for all requests or none: the grants come back in
	// the order of the requests. The error is a [*HeldError] for one of the
	// names that is held, if it can the first, and then no name was granted.
	// Names are distinct.
	// A store that cannot take just these names atomically (they live on
	// different servers) returns an error that wraps [ErrUnsupported] and has
	// done nothing.
	AcquireAll(ctx context.Context, reqs []Request) ([]Grant, error)
}

// Passer is implemented by stores that can give a lock from one owner to another
// in one step. dlock does so among goroutines of one process, for a moment at a
// time.
type Passer interface {
	// Pass is Release of grant and Acquire of req, which has the same name and
	// another owner, as one atomic step: nobody can have the lock in between, and
	// nobody need be woken. The new grant has a token and a TTL as if the lock had
	// been free. [ErrNotHeld] says that grant's owner did not hold the lock with
	// grant's token, and then nothing was changed.
	// A store that cannot, as it was set up, returns an error that wraps
	// [ErrUnsupported] and has done nothing.
	Pass(ctx context.Context, grant Grant, req Request) (Grant, error)
}

// Lister is implemented by stores that can enumerate the locks that are held.
type Lister interface {
	// List yields the held locks whose names start with prefix, each once, in
	// no particular order: one Info for each holder, of whom a name may have
	// several once there are shared modes. It is not a snapshot. A non-nil
	// error is the last thing it yields.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// Info describes a held lock.
type Info struct {
	Name      string
	Token     uint64
	Holder    Holder
	Since     time.Time     // when it was granted, by the store's clock; zero if unknown
	Remaining time.Duration // until it expires unless it is renewed
	// Waiters counts who waits in the store: every fair waiter, and one for
	// each process that has waited for a while. Zero where the store cannot tell.
	Waiters int
}

// Finder is implemented by stores that can find one lock faster than by listing.
type Finder interface {
	// Find describes the lock of that name as List does, without looking through
	// others. It returns false if the lock is not held.
	Find(ctx context.Context, name string) (Info, bool, error)
}

// Breaker is implemented by stores that can take a lock from its holder.
type Breaker interface {
	// Break releases name if it is held with that very token, as one atomic
	// step, and wakes its waiters. [ErrNotHeld] otherwise.
	Break(ctx context.Context, name string, token uint64) error
}

// TokenRaiser is implemented by stores that can be members of a quorum whose
// tokens rise: they also honour Request.Floor.
type TokenRaiser interface {
	// RaiseToken raises the token of a lock that grant.Owner holds to just
	// that token, and every later token of the name above it, in one atomic
	// step. It leaves the TTL as it is, and a token that is larger already.
	// The Grant that it returns is the one to go on with. [ErrNotHeld] says
	// that the owner does not hold the lock, and then nothing was changed.
	RaiseToken(ctx context.Context, grant Grant, token uint64) (Grant, error)
}

// Identifier is implemented by stores that can tell whether two of them reach
// the same server.
type Identifier interface {
	// Identify returns what identifies the server: the same text on every
	// connection to it, never empty, and another one for every other server.
	// It may change when the server starts again.
	Identify(ctx context.Context) (string, error)
}

// Diagnoser is implemented by stores that can examine their configuration.
type Diagnoser interface {
	// Diagnose looks for what weakens the promises of Traits and for what is
	// missing. Being unable to reach the store is an error, all else a finding.
	Diagnose(ctx context.Context) ([]Finding, error)
}

// Finding is one result of a diagnosis.
type Finding struct {
	Check   string `json:"check"`   // a short stable name: "journal_mode"
	Level   Level  `json:"level"`   // how bad it is
	Message string `json:"message"` // what was found, and what to do about it

	// Breaks is the promise that the store does not keep because of it, as it is
	// configured now; empty if it breaks none.
	Breaks Promise `json:"breaks,omitempty"`
}

// Promise is something that people rely on a store for.
type Promise string

// The promises that a Finding may break.
const (
	PromiseExclusion Promise = "exclusion" // a name has one holder at a time
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
