package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// lasting are the answers that trying again does not change, and what they mean.
// After each of them nothing has happened.
var lasting = []struct {
	err     error
	meaning string
}{
	{rpctypes.ErrNoSpace, "the server has no space left (alarm NOSPACE): compact and defragment it, raise its quota, then disarm the alarm"},
	{rpctypes.ErrCorrupt, "the server found that its data is corrupt (alarm CORRUPT)"},
	{rpctypes.ErrAuthFailed, "wrong user or password"},
	{rpctypes.ErrUserEmpty, "the server wants a user and a password, or a client certificate"},
	{rpctypes.ErrPermissionDenied, "the user lacks a permission: dlock needs to read and write all keys that begin with the prefix"},
	{rpctypes.ErrInvalidAuthToken, "the server does not accept the token of the user any more"},
	{rpctypes.ErrAuthOldRevision, "the permissions of the user have just changed"},
	{rpctypes.ErrLeaseTTLTooLarge, "the TTL is longer than the server allows"},
	{rpctypes.ErrRequestTooLarge, "the description of the holder is larger than the server allows"},
	{rpctypes.ErrTooManyRequests, "the server is overloaded"},
	{rpctypes.ErrNotCapable, "the server is too old"},
}

// isCertain says that an error is an answer, after which nothing has happened and
// nothing will.
func isCertain(err error) bool {
	if err == nil {
		return false
	}
	for _, answer := range lasting {
		if errors.Is(rpctypes.Error(err), answer.err) || errors.Is(err, answer.err) {
			return true
		}
	}
	return false
}

// explain says what an error of the client means. It is not for the end of a
// caller's context.
func (s *Store) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, driver.ErrUnreachable) || errors.Is(err, errLeaseGone):
		return err
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return explainError(err)
}

func explainError(err error) error {
	for _, answer := range lasting {
		if errors.Is(rpctypes.Error(err), answer.err) || errors.Is(err, answer.err) {
			return fmt.Errorf("etcdlock: %s: %w", answer.meaning, err)
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
