package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// ErrNumbersUsedUp: the container of a lock has given out all its sequence numbers. It
// begins again as soon as the lock has no holder and no waiter.
var ErrNumbersUsedUp = errors.New("the sequence numbers of the lock are used up, and begin again when it has no holder and no waiter")

var errNoRoot = fmt.Errorf("%w: the root does not exist in ZooKeeper", driver.ErrMisconfigured)

// errMaybeReleased: a release that was repeated found no node. An earlier try, whose answer is
// missing, may have removed it, or the lock may have ended before.
var errMaybeReleased = fmt.Errorf("%w: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

// rejections are the answers after which nothing was changed, and which a repetition does not change.
var rejections = []struct {
	err     error
	meaning string
	kind    error // of the contract
}{
	{zk.ErrNoAuth, "the ACL does not permit it: wrong user or password?", driver.ErrDenied},
	{zk.ErrAuthFailed, "the authentication failed", driver.ErrDenied},
	{zk.ErrInvalidACL, "the server rejects the ACL; without a user there is no creator", driver.ErrMisconfigured},
	{zk.ErrNoChildrenForEphemerals, "the root is an ephemeral node", driver.ErrMisconfigured},
	{zk.ErrInvalidPath, "the server rejects the path", driver.ErrMisconfigured},
	{zk.ErrBadArguments, "the server rejects the request", driver.ErrMisconfigured},
}

// explain makes an error of the client one of the contract. It returns others as they are.
func explain(what string, err error) error {
	switch {
	case err == nil, isAny(err, driver.ErrHeld, driver.ErrNotHeld, driver.ErrUnreachable, driver.ErrClosed, driver.ErrDenied,
		driver.ErrMisconfigured, ErrNumbersUsedUp, context.Canceled, context.DeadlineExceeded):
		return err
	case errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("%w: %s: %w", driver.ErrClosed, what, err)
	}
	for _, r := range rejections {
		if errors.Is(err, r.err) {
			return fmt.Errorf("%w: %s: %s: %w", r.kind, what, r.meaning, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, what, err)
}

// isUnknown reports whether an operation may have happened although it failed.
func isUnknown(err error) bool {
	for _, r := range rejections {
		if errors.Is(err, r.err) {
			return false
		}
	}
	return unless(err, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, errNoRoot, ErrNumbersUsedUp) != nil
}

// isAny reports whether err is one of targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// unless returns err, or nil if err is one of those to ignore.
func unless(err error, ignored ...error) error {
	if isAny(err, ignored...) {
		return nil
	}
	return err
}
