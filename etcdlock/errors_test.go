package etcdlock

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestAnswersThatPass: an answer that passes by itself does not end a wait, and like one
// that lasts it leaves nothing in doubt.
func TestAnswersThatPass(t *testing.T) {
	for answer, passes := range map[error]bool{
		rpctypes.ErrGRPCRequestTooManyRequests: true,
		rpctypes.ErrGRPCInvalidAuthToken:       true,
		rpctypes.ErrGRPCAuthOldRevision:        true,
		rpctypes.ErrGRPCNoSpace:                false,
		rpctypes.ErrGRPCPermissionDenied:       false,
		rpctypes.ErrGRPCAuthFailed:             false,
	} {
		for _, err := range []error{answer, rpctypes.Error(answer)} { // of gRPC, and of the client
			if got := errors.Is(explainError(err), driver.ErrUnreachable); got != passes {
				t.Errorf("%v: it is worth to try again: %t; want %t", err, got, passes)
			}
			if !isCertain(err) {
				t.Errorf("%v: it is not certain that nothing has happened", err)
			}
		}
	}
	if err := errors.New("anything else"); isCertain(err) || !errors.Is(explainError(err), driver.ErrUnreachable) {
		t.Errorf("%v: %v, certain: %t", err, explainError(err), isCertain(err))
	}
}
