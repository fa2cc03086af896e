package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// ErrNumbersUsedUp says that a lock's container has given out all its numbers. It is
// over when everybody who has or waits for the lock has gone.
var ErrNumbersUsedUp = errors.New("the sequence numbers of the lock are used up, and begin again when it has no holder and no waiter")

var errNoRoot = fmt.Errorf("%w: the root does not exist in ZooKeeper", driver.ErrMisconfigured)

// lasting are the answers that trying again does not change, and what they mean.
var lasting = []struct {
	err     error
	meaning string
	kind    error // of the contract
}{
	{zk.ErrNoAuth, "the ACL does not permit it: wrong user or password?", driver.ErrDenied},
	{zk.ErrAuthFailed, "the authentication failed", driver.ErrDenied},
	{zk.ErrInvalidACL, "the server does not take the ACL; without a user there is no creator", driver.ErrMisconfigured},
	{zk.ErrNoChildrenForEphemerals, "the root is an ephemeral node", driver.ErrMisconfigured},
	{zk.ErrInvalidPath, "the path is not one that ZooKeeper takes", driver.ErrMisconfigured},
	{zk.ErrBadArguments, "the server does not take the request", driver.ErrMisconfigured},
}

// explain says what an error of the client means.
func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrUnreachable), errors.Is(err, driver.ErrClosed), errors.Is(err, ErrNumbersUsedUp), errors.Is(err, errNoRoot), errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrMisconfigured),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("%w: %s: %w", driver.ErrClosed, what, err)
	}
	for _, answer := range lasting {
		if errors.Is(err, answer.err) {
			return fmt.Errorf("%w: %s: %s: %w", answer.kind, what, answer.meaning, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, what, err)
}

// inDoubt says whether an operation may have happened although it failed.
func inDoubt(err error) bool {
	for _, answer := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidPath, zk.ErrBadArguments, errNoRoot, ErrNumbersUsedUp,
	} {
		if errors.Is(err, answer) {
			return false
		}
	}
	return err != nil
}

// broken says whether an operation failed because the connection did, or the session.
func broken(err error) bool {
	for _, end := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
