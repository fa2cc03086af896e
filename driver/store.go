package driver

import (
	"context"
	"time"
)

// Store keeps locks. All methods may be called concurrently.
//
// Every method that takes a context returns soon after the context is done. A
// context that was done before the call changes nothing in the store. What one
// that ends during the call leaves behind is said at each method. An error that wraps
// neither [ErrHeld] nor [ErrNotHeld] means that the outcome is unknown: the
// operation may have happened, may still happen, or may never happen. A store
// that could not be reached wraps [ErrUnreachable].
type Store interface {
	// Acquire makes one attempt, atomically, and never waits for the lock.
	//
	// If the lock is free it belongs to req.Owner until TTL after the moment
	// the store granted it, counted by the store's clock, and the Grant
	// carries a token larger than that of every earlier grant of the name.
	// The expiry is set in the same atomic step as the ownership.
	//
	// If another owner has it, the error is a [*HeldError], which says who if
	// the store is a [Lister].
	//
	// Acquire is idempotent per owner: where req.Owner already holds the
	// lock, its TTL starts again and the Grant has the same token as before.
	// Asking again never ends the lock earlier than it would have ended
	// without it, whatever the second TTL is and however late it arrives.
	//
	// If the context ends first, or the reply is lost, the owner may hold the
	// lock all the same; it then expires by itself, or is given back by
	// Release with the owner alone.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew starts the TTL of each grant again, in as few round trips as the
	// store can. It returns nil if all of them were renewed, otherwise one
	// error per grant, nil where it was renewed.
	//
	// [ErrNotHeld] is final: the grant's owner does not hold the lock. Renew
	// never creates or takes a lock, and never extends one that belongs to
	// another owner, however late it arrives.
	//
	// Renew never ends a lock earlier than it would have ended without it: a
	// Renew that the store carries out after a later one, because it was held
	// up on its way or waited in the store, does not undo that one.
	Renew(ctx context.Context, grants []Grant) []error

	// Release gives up whatever grant.Owner has under grant.Name: the lock,
	// and a place in the queue. If grant.Token is not zero, the lock is given
	// up only if it was granted with that token; with a zero token the owner
	// alone decides, which undoes an Acquire of unknown outcome.
	//
	// The comparison and the release are one atomic step. [ErrNotHeld] says
	// that the owner did not hold the lock; somebody else's lock is never
	// touched, however late or often a Release arrives.
	//
	// Release is the end of its owner, which acquires no more. An Acquire of the
	// owner that was sent before leaves no lock behind, however late it is
	// carried out: the store undoes it by itself, if need be in the background.
	// Release may wait for an Acquire of the owner that is still under way; if the
	// context ends first, the error wraps [ErrUnreachable].
	Release(ctx context.Context, grant Grant) error

	// Traits says what the store promises. It is constant and makes no calls.
	Traits() Traits

	// Close frees what the store itself opened and waits for its background
	// work. It releases no locks, unless Traits.SessionBound. Calling it twice
	// is fine.
	Close() error
}

// Request is one acquisition of one name. The zero values of the optional
// fields ask for a plain exclusive lock; modes that are added later are zero
// when not wanted, and asked for only where [Traits] offer them.
type Request struct {
	Name  string        // what to lock; passes CheckName
	Owner Owner         // the secret that identifies this acquisition and no other
	TTL   time.Duration // within the limits of Traits

	// Holder describes who asks, for people. It is stored with the lock.
	Holder Holder

	// Fair asks for the lock in the order of arrival among fair requests.
	// Stores without Traits.Fair never see it.
	Fair bool

	// Queue says that the caller will try again with the same owner until it
	// is granted or gives up with Release. A fair store keeps the owner's
	// place until then, but at most for TTL after the last attempt, so that a
	// dead waiter blocks nobody for long. A fair attempt without Queue leaves
	// no place behind and fails while anybody queues. Without Fair only stores
	// with Traits.Queues see it: they may keep a place in the same way, and do
	// for whoever watches.
	Queue bool

	// Floor asks for a token that is at least that. Zero asks for nothing. A
	// store that is no member of a quorum never sees it.
	Floor uint64

	// Lost may be nil. A store with Traits.ReportsLoss calls it when it learns
	// by itself that the grant is gone (its session ended, the connection
	// that held it closed), at most once, from any goroutine. It returns
	// soon and does not call the store. Where an owner asked several times,
	// the Lost of its last request counts.
	Lost func()
}

// Grant is a lock that was granted.
type Grant struct {
	Name  string
	Owner Owner
	Token uint64 // never zero

	// TTL is what the store promises: the lock is not given to anybody else
	// before TTL has passed since Acquire or Renew was sent, unless it was
	// released, broken or, with Traits.SessionBound, its session ended. It may
	// be less than was asked for, and is what Renew promises again; what
	// else a store needs to renew, it keeps in Handle.
	TTL time.Duration

	// Handle is the store's own; dlock hands it back unseen.
	Handle any
}
