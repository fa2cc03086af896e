package etcdlock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestTemporaryRejectionsAreUnreachable: a rejection that is temporary does not end a wait, and
// like a permanent one it says that nothing was changed.
func TestTemporaryRejectionsAreUnreachable(t *testing.T) {
	for rejection, temporary := range map[error]bool{
		rpctypes.ErrGRPCRequestTooManyRequests: true,
		rpctypes.ErrGRPCInvalidAuthToken:       true,
		rpctypes.ErrGRPCAuthOldRevision:        true,
		rpctypes.ErrGRPCNoSpace:                false,
		rpctypes.ErrGRPCPermissionDenied:       false,
		rpctypes.ErrGRPCAuthFailed:             false,
	} {
		wrapped := fmt.Errorf("interceptor: %w", rejection)
		for _, err := range []error{rejection, rpctypes.Error(rejection), wrapped} { // of gRPC, of the client, and of an interceptor
			if got := errors.Is(explainError(err), driver.ErrUnreachable); got != temporary {
				t.Errorf("%v: ErrUnreachable is %t; want %t", err, got, temporary)
			}
			if rejectionOf(err) == nil {
				t.Errorf("%v: is not a rejection", err)
			}
		}
	}
	if err := errors.New("anything else"); rejectionOf(err) != nil || !errors.Is(explainError(err), driver.ErrUnreachable) {
		t.Errorf("%v: %v, rejection: %t", err, explainError(err), rejectionOf(err) != nil)
	}
}
