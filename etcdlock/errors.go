package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// answers are those after which nothing has happened, and what they mean. Some of them
// pass by themselves, so that it is worth to try again; the others last.
var answers = []struct {
	err     error
	meaning string
	passes  bool
	kind    error // the error of the contract; nil if a later attempt may succeed
}{
	{err: rpctypes.ErrNoSpace, meaning: "the server has no space left (alarm NOSPACE): compact and defragment it, raise its quota, then disarm the alarm", kind: driver.ErrMisconfigured},
	{err: rpctypes.ErrCorrupt, meaning: "the server found that its data is corrupt (alarm CORRUPT)", kind: driver.ErrMisconfigured},
	{err: rpctypes.ErrAuthFailed, meaning: "wrong user or password", kind: driver.ErrDenied},
	{err: rpctypes.ErrAuthNotEnabled, meaning: "the server has no users: leave the user and the password out", kind: driver.ErrMisconfigured},
	{err: rpctypes.ErrUserEmpty, meaning: "the server wants a user and a password, or a client certificate", kind: driver.ErrDenied},
	{err: rpctypes.ErrPermissionDenied, meaning: "the user lacks a permission: dlock needs to read and write all keys that begin with the prefix", kind: driver.ErrDenied},
	{err: rpctypes.ErrInvalidAuthToken, meaning: "the server does not accept the token of the user any more", passes: true},
	{err: rpctypes.ErrAuthOldRevision, meaning: "the permissions of the user have just changed", passes: true},
	{err: rpctypes.ErrLeaseTTLTooLarge, meaning: "the TTL is longer than the server allows"},
	{err: rpctypes.ErrRequestTooLarge, meaning: "the description of the holder is larger than the server allows"},
	{err: rpctypes.ErrTooManyRequests, meaning: "the server is overloaded", passes: true},
	{err: rpctypes.ErrNotCapable, meaning: "the server is too old", kind: driver.ErrMisconfigured},
}

// isCertain says that an error is an answer, after which nothing has happened and
// nothing will.
func isCertain(err error) bool {
	for _, answer := range answers {
		if isAnswer(err, answer.err) {
			return true
		}
	}
	return false
}

// lasts says that an error is an answer that trying again does not change.
func lasts(err error) bool {
	return isCertain(err) && !errors.Is(explainError(err), driver.ErrUnreachable)
}

// isAnswer says whether an error is that answer, as the client or as gRPC tells it.
func isAnswer(err, answer error) bool {
	return err != nil && (errors.Is(rpctypes.Error(err), answer) || errors.Is(err, answer))
}

// explain says what an error of the client means. It is not for the end of a
// caller's context.
func (s *Store) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrMisconfigured) || errors.Is(err, errLeaseGone):
		return err
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return explainError(err)
}

func explainError(err error) error {
	for _, answer := range answers {
		switch {
		case !isAnswer(err, answer.err):
		case answer.passes:
			return fmt.Errorf("%w: %s: %w", driver.ErrUnreachable, answer.meaning, err)
		case answer.kind != nil:
			return fmt.Errorf("%w: %s: %w", answer.kind, answer.meaning, err)
		default:
			return fmt.Errorf("%s: %w", answer.meaning, err)
		}
	}
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
}

// failure is explain for calls that end with the caller's context.
func (s *Store) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.explain(err)
}
