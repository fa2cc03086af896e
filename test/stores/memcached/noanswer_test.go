package memcached

import (
	"testing"

	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Memcached).Addr())
	store := openNow(t, p.Addr())
	grant := take(t, store, "held")
	p.Hold()
	t.Cleanup(p.Deliver) // so that Close reaches the server
	faults.NoAnswer(t, store, grant, late("abandoned"), "an earlier attempt has not ended")
}
