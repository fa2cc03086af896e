package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// ErrNumbersUsedUp reports that the container of a lock has given out all its sequence numbers. The
// numbers restart at zero as soon as the lock has no holder and no waiter.
var ErrNumbersUsedUp = errors.New("all sequence numbers of the lock are used up: try again when it has no holder and no waiter")

var errNoRoot = fmt.Errorf("%w: the root does not exist in ZooKeeper", driver.ErrMisconfigured)

// errMaybeReleased: a release that was repeated found no node. An earlier, unanswered try may have
// removed it, or the lock may have ended before.
var errMaybeReleased = fmt.Errorf("%w: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

type rejection struct {
	err     error
	meaning string
	kind    error // of the contract; nil if there is none
}

// errQuota is an error without a name in the client, which knows the codes of older servers.
var errQuota = errors.New("quota exceeded")

// named gives an error a name if the client has none for it.
func named(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "unknown error: -125") {
		return fmt.Errorf("%w: %w", errQuota, err)
	}
	return err
}

// rejections are the answers after which nothing was changed, and a repetition changes nothing.
var rejections = []rejection{
	{zk.ErrNoAuth, "the ACL does not permit it: wrong user or password?", driver.ErrDenied},
	{zk.ErrAuthFailed, "the authentication failed", driver.ErrDenied},
	{zk.ErrInvalidACL, "the server rejects the ACL (acl=creator needs a user)", driver.ErrMisconfigured},
	{zk.ErrNoChildrenForEphemerals, "a parent node is ephemeral", driver.ErrMisconfigured},
	{zk.ErrInvalidPath, "the server rejects the path", driver.ErrMisconfigured},
	{errQuota, "the path or one above it has as many nodes or bytes as its quota allows (listquota, setquota)", driver.ErrMisconfigured},
	{zk.ErrShortBuffer, fmt.Sprintf("the request is larger than %d kB: shorten the note of the lock", sendBuffer>>10), nil},
	{zk.ErrBadArguments, "the server rejects the request", driver.ErrMisconfigured},
}

// explain wraps an error of the ZooKeeper client in the matching error of package driver, or in
// ErrUnreachable if there is none. It returns errors of package driver and of contexts unchanged.
func explain(what string, err error) error {
	switch {
	case err == nil, isAny(err, driver.ErrHeld, driver.ErrNotHeld, driver.ErrUnreachable, driver.ErrClosed, driver.ErrDenied,
		driver.ErrMisconfigured, driver.ErrMode, driver.ErrUnsupported, ErrNumbersUsedUp, context.Canceled, context.DeadlineExceeded):
		return err
	case errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("%w: %s: %w", driver.ErrClosed, what, err)
	}
	err = named(err)
	for _, r := range rejections {
		if errors.Is(err, r.err) {
			if r.kind == nil {
				return fmt.Errorf("%s: %s: %w", what, r.meaning, err)
			}
			return fmt.Errorf("%w: %s: %s: %w", r.kind, what, r.meaning, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, what, err)
}

// isOutcomeKnown reports whether it is known what an operation has done: it succeeded, or the
// server refused it, and a repetition would be refused, too.
func isOutcomeKnown(err error) bool {
	err = named(err)
	return slices.ContainsFunc(rejections, func(r rejection) bool { return errors.Is(err, r.err) }) ||
		ignore(err, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, errNoRoot, ErrNumbersUsedUp, driver.ErrMode) == nil
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// ignore returns err, or nil if err is one of those to ignore.
func ignore(err error, ignored ...error) error {
	if isAny(err, ignored...) {
		return nil
	}
	return err
}
