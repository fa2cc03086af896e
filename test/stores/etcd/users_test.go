package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// enableUsers makes a server reject all users but root and ann. ann may use the keys that begin with
// app/.
func enableUsers(t *testing.T, server *servers.Server) {
	t.Helper()
	raw := rawClient(t, server.URL())
	ctx := t.Context()
	must := func(_ any, err error) { t.Helper(); want.OK(t, err) }
	must(raw.UserAdd(ctx, "root", "s3cr3t-root"))
	must(raw.UserGrantRole(ctx, "root", "root"))
	must(raw.RoleAdd(ctx, "app"))
	must(raw.RoleGrantPermission(ctx, "app", "app/", clientv3.GetPrefixRangeEnd("app/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(raw.UserAdd(ctx, "ann", annsPassword))
	must(raw.UserGrantRole(ctx, "ann", "app"))
	must(raw.AuthEnable(ctx))
}

func TestUsersNeedPermissions(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	enableUsers(t, server)
	ctx := t.Context()
	at := func(user, password, prefix string) string {
		return "etcd://" + url.UserPassword(user, password).String() + "@" + server.Addr() + prefix
	}
	if err := lockOnce(t, at("ann", annsPassword, "/app")); err != nil {
		t.Errorf("the right user: %v", err)
	}
	for url, says := range map[string]string{
		at("ann", "s3cr3t-wrong", "/app"): "wrong user or password",
		at("nobody", "s3cr3t", "/app"):    "wrong user or password",
		at("ann", annsPassword, "/other"): "permission",
		server.URL() + "/app":             "user",
	} {
		err := lockOnce(t, url)
		failsWith(t, err, says)
		if !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("%v; want ErrDenied", err)
		}
	}

	store := newStore(t, at("ann", annsPassword, "/app"))
	want.OK(t, want.Err(store.Diagnose(ctx))) // by a user with few permissions
	_, err := newStore(t, at("ann", annsPassword, "/other")).Watch(ctx, request("orders"), func() {})
	failsWith(t, err, "permission")

	lease := lockAnyhow(t, dlock.New(store, nil), "orders")
	got := lockLater(t, newClient(t, at("ann", annsPassword, "/app"), longTTL), "orders")
	await.Until(t, "the waiter has a place", func() bool { return waiters(store, "orders") == 1 })
	want.Unlock(t, lease)
	want.Unlock(t, want.Served(t, got, lease.Token()))
}

// TestWatchSurvivesAnExpiredToken: a new waiter is woken by a release, also if other waiters of its
// process have waited for longer than the server accepts the token that their watches began with.
func TestWatchSurvivesAnExpiredToken(t *testing.T) {
	t.Parallel()
	const tokenTTL = time.Second
	server := servers.Run(t, servers.Etcd, "--auth-token-ttl", fmt.Sprint(tokenTTL.Seconds()))
	enableUsers(t, server)
	store := newStore(t, "etcd://"+url.UserPassword("ann", annsPassword).String()+"@"+server.Addr()+"/app")
	watch := func(name string, wake func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit/2)
		defer cancel()
		stop, err := store.Watch(ctx, request(name), wake)
		if err != nil {
			t.Fatalf("Watch(%q): %v", name, err)
		}
		t.Cleanup(stop)
	}
	watch("others", func() {})
	untilTokensExpire(t, server, tokenTTL)

	grant := want.Acquire(t, store, request("orders"))
	woken := make(chan struct{}, 1)
	watch("orders", func() { woken <- struct{}{} })
	want.Release(t, store, grant)
	happens(t, woken)
}

// untilTokensExpire waits until the server has forgotten the tokens that were last used before the call.
func untilTokensExpire(t *testing.T, server *servers.Server, ttl time.Duration) {
	t.Helper()
	raw := want.Value(clientv3.New(clientv3.Config{
		Endpoints: []string{server.Addr()}, Username: "ann", Password: annsPassword, Logger: zap.NewNop(),
	}))(t)
	defer raw.Close()
	rejected := func() bool { // by the stream that the first call opens
		reply := <-raw.Watch(t.Context(), "app/", clientv3.WithCreatedNotify())
		return reply.Err() != nil
	}
	if rejected() {
		t.Fatal("a new token was rejected")
	}
	unused := time.NewTicker(3 * ttl) // because each try uses the token
	defer unused.Stop()
	await.Until(t, "a token has expired", func() bool { <-unused.C; return rejected() })
}
