package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// errLeaseGone: the lease has ended.
var errLeaseGone = errors.New("the lease has ended")

// errMaybeReleased: a release that was repeated found nothing. An earlier try, whose answer is
// missing, may have released the lock, or the lock may have ended before.
var errMaybeReleased = fmt.Errorf("%w: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

// rejections are the errors after which nothing was changed, and what they mean.
var rejections = []struct {
	err     error
	meaning string
	kind    error // the error of the contract; ErrUnreachable if trying again is worth it; nil if there is none
}{
	{rpctypes.ErrNoSpace, "the server has no space left (alarm NOSPACE): compact and defragment it, raise its quota, then disarm the alarm", driver.ErrMisconfigured},
	{rpctypes.ErrCorrupt, "the server found that its data is corrupt (alarm CORRUPT)", driver.ErrMisconfigured},
	{rpctypes.ErrAuthFailed, "wrong user or password", driver.ErrDenied},
	{rpctypes.ErrAuthNotEnabled, "the server has no users: leave the user and the password out", driver.ErrMisconfigured},
	{rpctypes.ErrUserEmpty, "the server wants a user and a password, or a client certificate", driver.ErrDenied},
	{rpctypes.ErrPermissionDenied, "the user lacks a permission: dlock needs to read and write all keys that begin with the prefix", driver.ErrDenied},
	{rpctypes.ErrInvalidAuthToken, "the server does not accept the token of the user any more", driver.ErrUnreachable},
	{rpctypes.ErrAuthOldRevision, "the permissions of the user have just changed", driver.ErrUnreachable},
	{rpctypes.ErrLeaseTTLTooLarge, "the TTL is longer than the server allows", nil},
	{rpctypes.ErrRequestTooLarge, "the description of the holder is larger than the server allows", nil},
	{rpctypes.ErrTooManyRequests, "the server is overloaded", driver.ErrUnreachable},
	{rpctypes.ErrNotCapable, "the server is too old", driver.ErrMisconfigured},
}

// isRejection reports whether err says that nothing was changed, and nothing will be.
func isRejection(err error) bool {
	for _, r := range rejections {
		if isError(err, r.err) {
			return true
		}
	}
	return false
}

// isFinal reports whether err is a rejection that trying again does not change.
func isFinal(err error) bool {
	return isRejection(err) && !errors.Is(explainError(err), driver.ErrUnreachable)
}

// isError reports whether err is target, as the client or as gRPC returns it.
func isError(err, target error) bool {
	return err != nil && (errors.Is(rpctypes.Error(err), target) || errors.Is(err, target))
}

// explain returns an error of the contract for an error of the client. It is not for the end of a
// caller's context.
func (s *Store) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, errLeaseGone):
		return err
	case errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrMisconfigured):
		return err
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return explainError(err)
}

func explainError(err error) error {
	for _, r := range rejections {
		switch {
		case !isError(err, r.err):
		case r.kind != nil:
			return fmt.Errorf("%w: %s: %w", r.kind, r.meaning, err)
		default:
			return fmt.Errorf("%s: %w", r.meaning, err)
		}
	}
	switch text := err.Error(); {
	case strings.Contains(text, "error reading server preface"):
		return fmt.Errorf("%w: the server closed a new connection (does it want TLS?): %w", driver.ErrUnreachable, err)
	case strings.Contains(text, "handshake failed: EOF"):
		return fmt.Errorf("%w: the server ended the TLS handshake (does it speak TLS?): %w", driver.ErrUnreachable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
}

// explainUnlessDone is explain for calls that end with the caller's context.
func (s *Store) explainUnlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return unanswered(ctx)
	}
	return s.explain(err)
}

// unanswered returns the error of a call whose context ended before the server answered.
func unanswered(ctx context.Context) error {
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnreachable, context.Cause(ctx))
}
