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
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// enableUsers makes a server reject all users but root and ann. ann may use the keys that begin with
// app/.
func enableUsers(t *testing.T, server *servers.Server) {
	t.Helper()
	raw := rawClient(t, server.URL())
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
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
	if _, err := store.(driver.Diagnoser).Diagnose(ctx); err != nil {
		t.Errorf("Diagnose by a user with few permissions: %v", err)
	}
	_, err := newStore(t, at("ann", annsPassword, "/other")).(driver.Watcher).Watch(ctx, request("orders"), func() {})
	failsWith(t, err, "permission")

	holder, waiter := dlock.New(store, nil), newClient(t, at("ann", annsPassword, "/app"), longTTL)
	lease := lockAnyhow(t, holder, "orders")
	got := make(chan *dlock.Lease, 1)
	go func() { got <- lockAnyhow(t, waiter, "orders") }()
	eventually(t, "the waiter has a place", func() bool { return waiters(store, "orders") == 1 })
	unlock(t, lease)
	unlock(t, <-got)
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
		stop, err := store.(driver.Watcher).Watch(ctx, request(name), wake)
		if err != nil {
			t.Fatalf("Watch(%q): %v", name, err)
		}
		t.Cleanup(stop)
	}
	watch("others", func() {})
	untilTokensExpire(t, server, tokenTTL)

	grant, err := store.Acquire(t.Context(), request("orders"))
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{}, 1)
	watch("orders", func() { woken <- struct{}{} })
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(limit):
		t.Errorf("not woken within %v", limit)
	}
}

// untilTokensExpire waits until the server has forgotten the tokens that were last used before the call.
func untilTokensExpire(t *testing.T, server *servers.Server, ttl time.Duration) {
	t.Helper()
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Username: "ann", Password: annsPassword, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
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
	for deadline := time.Now().Add(limit); ; {
		<-unused.C
		if rejected() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no token has expired within %v", limit)
		}
	}
}
