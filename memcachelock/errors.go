package memcachelock

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

var (
	errNoCAS = fmt.Errorf("%w: memcached: the server was started with -C and cannot compare", driver.ErrMisconfigured)

	// errNotMemcached: the answer is not one of the protocol.
	errNotMemcached = fmt.Errorf("%w: memcached: not an answer of memcached 1.6 or newer", driver.ErrMisconfigured)

	// errTooManyConnections: other programs use all connections that the server allows.
	errTooManyConnections = errors.New("the server has too many open connections")

	// errRefused: the call failed, but the connection can be used again.
	errRefused = errors.New("memcached refused")

	// errSilent: nothing arrived on a connection for too long.
	errSilent = errors.New("the connection is silent")

	// errMaybeReleased: a release that was repeated found no lock. An earlier try, whose answer is
	// missing, may have released it, or the lock may have ended before.
	errMaybeReleased = fmt.Errorf("%w: memcached: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

	// errMaybeGranted: an attempt that was repeated found the lock held. The earlier try, whose answer is
	// missing, may be carried out later.
	errMaybeGranted = fmt.Errorf("%w: memcached: the lock is held, and the answer to an earlier try was lost", driver.ErrUnreachable)

	// errContended: the item changed between reading and writing it, in each of several tries.
	errContended = failed("the lock is changed again and again")
)

// failed returns an errRefused with a text.
func failed(text string) error {
	return fmt.Errorf("%w: memcached: %w: %s", driver.ErrUnreachable, errRefused, text)
}

// unreachable adds ErrUnreachable to an error without a kind.
func unreachable(err error) error {
	if errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrMisconfigured) {
		return err
	}
	return fmt.Errorf("%w: memcached: %w", driver.ErrUnreachable, err)
}

// isOutcome reports whether err says what happened to the lock.
func isOutcome(err error) bool {
	return err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld)
}

// broken reports whether the connection cannot be used after err, because unread answers may
// be on their way.
func broken(err error) bool { return !isOutcome(err) && !errors.Is(err, errRefused) }
