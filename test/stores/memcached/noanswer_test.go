package memcached

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Memcached).Addr())
	store := openNow(t, p.Addr()).(*memcachelock.Store)
	grant := take(t, store, "held")
	p.Hold()
	t.Cleanup(p.Deliver) // so that Close reaches the server
	abandoned := late("abandoned")
	for _, call := range []struct {
		what, says string
		do         func(ctx context.Context) error
	}{
		{"Acquire", "no answer", func(ctx context.Context) error { _, err := store.Acquire(ctx, abandoned); return err }},
		{"Release behind that Acquire", "an earlier attempt has not ended", func(ctx context.Context) error {
			return store.Release(ctx, driver.Grant{Name: abandoned.Name, Owner: abandoned.Owner})
		}},
		{"Renew", "no answer", func(ctx context.Context) error { return errors.Join(store.Renew(ctx, []driver.Grant{grant})...) }},
		{"Release", "no answer", func(ctx context.Context) error { return store.Release(ctx, grant) }},
		{"Break", "no answer", func(ctx context.Context) error { return store.Break(ctx, "held", grant.Token) }},
		{"Find", "no answer", func(ctx context.Context) error { _, _, err := store.Find(ctx, "held"); return err }},
		{"Diagnose", "no answer", func(ctx context.Context) error { _, err := store.Diagnose(ctx); return err }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := call.do(ctx)
		cancel()
		if !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), call.says) {
			t.Errorf("%s: %v; want ErrUnreachable with the context's error, and %q", call.what, err, call.says)
		}
	}
}
