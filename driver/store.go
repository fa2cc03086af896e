package driver

import (
	"context"
	"time"
)

// Store keeps locks. All methods are safe for concurrent use.
//
// Every method that takes a context returns soon after the context is done. If the
// context is done before the call, the call changes nothing in the store. Each
// method says what it may leave behind if the context ends during the call. An
// error for which [Unchanged] is false means that the outcome is unknown: the
// operation may have happened, may still happen, or may never happen.
// If the store cannot be reached, the error wraps [ErrUnreachable].
type Store interface {
	// Acquire makes one attempt, atomically, and never waits for the lock.
	//
	// If the lock is free it belongs to req.Owner until TTL after the moment
	// the store granted it, counted by the store's clock, and the Grant
	// carries a token larger than that of every earlier grant of the name.
	// The expiry is set in the same atomic step as the ownership.
	//
	// If another owner has the lock, the error is a [*HeldError]. It describes
	// the holder if the store is a [Lister]. [Mode] says which owners may hold the lock at
	// the same time.
	//
	// Acquire is idempotent per owner: if req.Owner already holds the lock, its
	// TTL starts again and the Grant has the same tokens as before. A repeated
	// Acquire never ends the lock earlier than it would have ended without it,
	// whatever its TTL is and however late it arrives.
	//
	// If the context ends first, or the reply is lost, the owner may hold the
	// lock all the same. The lock then expires, or a Release with the owner alone
	// releases it.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew starts the TTL of each grant again, in as few round trips as the
	// store can. It returns nil if it renewed all grants, otherwise one error
	// per grant, nil for those that it renewed.
	//
	// With a zero token the owner alone decides, as with Release. [ErrNotHeld] is
	// final: the grant's owner does not hold the lock. Renew never creates or takes
	// a lock, and never extends the lock of another owner, however late it arrives.
	//
	// Renew never ends a lock earlier than it would have ended without it: a
	// delayed Renew that the store carries out after a later one does not undo
	// the later one.
	Renew(ctx context.Context, grants []Grant) []error

	// Release ends the lock of grant.Owner under grant.Name. If grant.Token is not
	// zero, Release ends the lock only if it was granted with that token. With a
	// zero token the owner alone decides, which undoes an Acquire of unknown outcome.
	// Release also removes the owner's place in the queue, even if it returns ErrNotHeld.
	//
	// The comparison and the release are one atomic step. [ErrNotHeld] means
	// that the owner did not hold the lock. Release never touches the lock of
	// another owner, however late or often it arrives.
	//
	// After Release, dlock makes no attempt with that owner any more. An
	// Acquire of the owner that was sent before leaves no lock behind, however
	// late the server carries it out: the store undoes it, if need be in the
	// background. Release may wait for an Acquire of the owner that is still under
	// way. If the context ends first, the error wraps [ErrUnreachable].
	Release(ctx context.Context, grant Grant) error

	// Traits returns what the store promises. It is constant and makes no calls.
	Traits() Traits

	// Close frees what the store itself opened and waits for its background
	// work. It releases no locks, unless Traits.SessionBound. It may be called
	// twice.
	Close() error
}

// Request is one attempt for one name. The zero values of the optional
// fields ask for a plain exclusive lock. dlock asks for other modes only if
// [Traits] offer them.
type Request struct {
	Name  string        // what to lock; passes CheckName
	Owner Owner         // the secret that identifies this grant and no other
	TTL   time.Duration // within the limits of Traits

	// Mode says which other holders may exist. All requests of an owner have the
	// same Mode.
	Mode Mode

	// Holder describes the caller, for people. The store keeps it with the lock.
	Holder Holder

	// Fair asks for the lock in the order of arrival among fair requests.
	// dlock sets it only for stores with Traits.Fair.
	//
	// A request that is not fair takes a free lock also while fair waiters have places, but not a
	// permit that a fair waiter is to have. If it is refused, a store without Traits.Queues
	// says by HeldError.Queued that there are such waiters. dlock then waits by a new owner,
	// whose requests are fair: if any waiter queues, all do, so that none starves.
	Fair bool

	// Queue says that the caller is a waiter: it will try again with the same owner until it
	// is granted or gives up with Release. A fair store keeps the owner's
	// place until then, but at most for PlaceTTL after the last attempt, so that a
	// dead waiter does not block others for long. Where places end with a session, they may
	// last as long as it. A fair attempt without Queue
	// leaves no place behind and fails while the queue is not empty. dlock sets Queue if
	//   - the request is fair,
	//   - the store has Traits.Queues, or
	//   - it is an exclusive Acquire and Traits.Shared is set: see [Mode].
	// A store with Traits.Queues keeps a place for every waiter that has called Watch, fair or
	// not, until the watch is stopped, and may keep one earlier.
	Queue bool

	// Lost may be nil. A store with Traits.ReportsLoss calls it when it learns
	// by itself that the grant is gone (its session ended, the connection
	// that held it closed), and before Close ends the grant; at most once,
	// from any goroutine. Lost returns soon and does not call the store. If an owner asked several times, the
	// Lost of its last request counts.
	Lost func()
}

// MaxPlaceTTL is the longest time for which a place lasts after an attempt. dlock attempts three
// times as often, so that only a longer outage costs waiters their places.
const MaxPlaceTTL = 10 * time.Second

// PlaceTTL returns for how long a place lasts after an attempt with that TTL.
func PlaceTTL(ttl time.Duration) time.Duration { return min(ttl, MaxPlaceTTL) }

// Grant is a lock that was granted.
type Grant struct {
	Name  string
	Owner Owner

	// Token is the first of the grant's tokens: see Traits.TokenStep. It is never zero. Acquire's
	// HeldError, List and Find show one of these tokens, always the same.
	Token uint64

	// TTL is what the store promises: it grants the lock to no other owner
	// before TTL has passed since Acquire or Renew was sent, unless the lock was
	// released, broken or, with Traits.SessionBound, its session ended. It may be
	// less than Request.TTL. A successful Renew promises the same TTL again.
	TTL time.Duration

	// Handle belongs to the store, which keeps there what it needs to renew or
	// release. dlock passes it back unread.
	Handle any
}
