package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

var errLeaseGone = errors.New("the etcd lease has ended")

var errCallLimit = fmt.Errorf("the call took longer than %v", callLimit)

// errLearner is how a learner rejects requests.
var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// errMaybeReleased: a release that was repeated found nothing. An earlier try, which was
// unanswered, may have released the lock, or the lock may have ended before.
var errMaybeReleased = fmt.Errorf("%w: the lock is gone, and the answer to its release was lost", driver.ErrUnreachable)

// rejection is an error after which nothing was changed, and nothing will be. Only ErrNoSpace may be
// the answer to a write that was carried out: see attemptFailed.
type rejection struct {
	err     error
	meaning string
	kind    error // the error of the contract; ErrUnreachable if trying again is worth it; nil if there is none
}

var rejections = []rejection{
	{rpctypes.ErrNoSpace, "the server has no space left (alarm NOSPACE): compact and defragment it, raise its quota, then disarm the alarm", driver.ErrMisconfigured},
	{rpctypes.ErrCorrupt, "the server found that its data is corrupt (alarm CORRUPT)", driver.ErrMisconfigured},
	{rpctypes.ErrAuthFailed, "wrong user or password", driver.ErrDenied},
	{rpctypes.ErrAuthNotEnabled, "the server has no users: leave the user and the password out", driver.ErrMisconfigured},
	{rpctypes.ErrUserEmpty, "the server wants a user and a password, or a client certificate", driver.ErrDenied},
	{rpctypes.ErrPermissionDenied, "the user lacks a permission: dlock needs to read and write all keys that begin with the prefix", driver.ErrDenied},
	{rpctypes.ErrInvalidAuthToken, "the server does not accept the user's auth token any more", driver.ErrUnreachable},
	{rpctypes.ErrAuthOldRevision, "the permissions of the user have just changed", driver.ErrUnreachable},
	{rpctypes.ErrLeaseTTLTooLarge, "the TTL is longer than the server allows", nil},
	{rpctypes.ErrRequestTooLarge, "the description of the holder is larger than the server allows", nil},
	{rpctypes.ErrTooManyRequests, "the server is overloaded", driver.ErrUnreachable},
	{errLearner, "the endpoints are learners, which serve no locks: use those of voting members", driver.ErrMisconfigured},
	{rpctypes.ErrNotCapable, "the server is too old", driver.ErrMisconfigured},
}

// rejectionOf returns the rejection that err is, or nil.
func rejectionOf(err error) *rejection {
	for i := range rejections {
		if isError(err, rejections[i].err) {
			return &rejections[i]
		}
	}
	return nil
}

// isError reports whether err is target, as the client or as gRPC returns it. Interceptors of the program
// may have wrapped it.
func isError(err, target error) bool {
	if server, ok := errors.AsType[statusError](err); ok {
		err = server // its text is what the server sent
	}
	return err != nil && (errors.Is(rpctypes.Error(err), target) || errors.Is(err, target))
}

// statusError is an error of gRPC.
type statusError interface {
	error
	GRPCStatus() *status.Status
}

// explain returns an error of the contract for the error of a call with ctx.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case ctx.Err() != nil && rejectionOf(err) == nil:
		return unanswered(ctx)
	}
	return explainError(err)
}

func explainError(err error) error {
	if r := rejectionOf(err); r != nil && r.kind == nil {
		return fmt.Errorf("%s: %w", r.meaning, err)
	} else if r != nil {
		return fmt.Errorf("%w: %s: %w", r.kind, r.meaning, err)
	}
	switch text := err.Error(); {
	case strings.Contains(text, "error reading server preface"):
		err = fmt.Errorf("the server closed a new connection (does it want TLS?): %w", err)
	case strings.Contains(text, "handshake failed: EOF"):
		err = fmt.Errorf("the server ended the TLS handshake (does it speak TLS?): %w", err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
}

// unanswered returns the error of a call whose context ended before the server answered.
func unanswered(ctx context.Context) error {
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnreachable, context.Cause(ctx))
}
