package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/proxy"
	"github.com/dlock-go/dlock/test/servers"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// lockOnce opens a store by its URL, and locks and unlocks through it.
func lockOnce(t *testing.T, url string) error {
	t.Helper()
	store, err := open(t.Context(), url)
	if err != nil {
		return err
	}
	defer store.Close()
	client := dlock.New(store, &dlock.Options{RequestTimeout: 5 * time.Second})
	defer client.Close()
	lease, err := client.Lock(t.Context(), "orders")
	if err != nil {
		return err
	}
	return lease.Unlock(t.Context())
}

// failsWith demands an error that says something, and does not give the password away.
func failsWith(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v; want that it says %q", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the password is in %v", err)
	}
}

// enableUsers makes a server refuse all but root and ann, who may use what begins with app/.
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

const annsPassword = "s3cr3t p@ss/w:rd%#?"

func TestUsers(t *testing.T) {
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
		t.Errorf("Diagnose by a user who may not see everything: %v", err)
	}
	_, err := newStore(t, at("ann", annsPassword, "/other")).(driver.Watcher).Watch(ctx, request("orders"), func() {})
	failsWith(t, err, "permission")

	holder, waiter := dlock.New(store, nil), newClient(t, at("ann", annsPassword, "/app"), longTTL)
	lease := lockAnyhow(t, holder, "orders")
	got := make(chan *dlock.Lease, 1)
	go func() { got <- lockAnyhow(t, waiter, "orders") }()
	eventually(t, "somebody waits", func() bool { return waiters(store, "orders") == 1 })
	unlock(t, lease)
	unlock(t, <-got)
}

// TestTokenExpires: who begins to wait hears when a lock is released, also if others of its
// process have waited for longer than the server knows the token that they began with.
func TestTokenExpires(t *testing.T) {
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

// untilTokensExpire waits until the server has forgotten the tokens that were last used
// before it was called.
func untilTokensExpire(t *testing.T, server *servers.Server, ttl time.Duration) {
	t.Helper()
	raw, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Username: "ann", Password: annsPassword, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	refused := func() bool { // by the stream that the first call opens
		reply := <-raw.Watch(t.Context(), "app/", clientv3.WithCreatedNotify())
		return reply.Err() != nil
	}
	if refused() {
		t.Fatal("a new token was refused")
	}
	unused := time.NewTicker(3 * ttl) // because a look uses the token
	defer unused.Stop()
	for deadline := time.Now().Add(limit); ; {
		<-unused.C
		if refused() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no token has expired within %v", limit)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servers.RunEtcdTLS(t)
	if err := lockOnce(t, server.SecureURL()); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	for what, test := range map[string]struct{ query, says string }{
		"no certificate":               {"tls=true&ca=" + url.QueryEscape(server.CAFile), "unreachable"},
		"an unknown authority":         {"tls=true", "certificate"},
		"no TLS":                       {"", "unreachable"},
		"an authority that is no file": {"tls=true&ca=/no/such/file", "ca"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			failsWith(t, lockOnce(t, server.URL()+"?"+test.query), test.says)
		})
	}
}

// TestNoSpace: who wants a lock is told why there is none, and leaves nothing
// behind; what is held is kept, renewed and given back.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, "--quota-backend-bytes", "200000")
	raw := rawClient(t, server.URL())
	client := newClient(t, server.URL(), faultTTL)
	kept := lockAnyhow(t, client, "kept")
	fill := strings.Repeat("x", 10_000)
	var err error
	for i := 0; err == nil; i++ {
		_, err = raw.Put(t.Context(), fmt.Sprint("fill", i), fill)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("filling the server: %v", err)
	}
	rival := newClient(t, server.URL(), faultTTL)
	_, err = rival.Lock(t.Context(), "refused")
	failsWith(t, err, "no space")
	_, err = client.Lock(t.Context(), "refused", dlock.WithFair())
	failsWith(t, err, "no space")
	if errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("it is worth trying again, says %v", err)
	}
	findings, err := newStore(t, server.URL()).(driver.Diagnoser).Diagnose(t.Context())
	if err != nil || !hasProblem(findings, "alarms") {
		t.Errorf("Diagnose finds %+v, %v", findings, err)
	}
	renewals, start := requests(t, server, "LeaseKeepAlive"), time.Now()
	eventually(t, "it is renewed for longer than its TTL", func() bool {
		return requests(t, server, "LeaseKeepAlive") > renewals && time.Since(start) > faultTTL
	})
	if err := kept.Context().Err(); err != nil {
		t.Errorf("a lock that is held is not kept: %v", err)
	}
	unlock(t, kept)
	left, err := raw.Get(t.Context(), "refused/", clientv3.WithPrefix())
	if err != nil || left.Count != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func hasProblem(findings []driver.Finding, check string) bool {
	for _, f := range findings {
		if f.Check == check && f.Level == driver.LevelProblem {
			return true
		}
	}
	return false
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for size, url := range map[string]string{
		"One member": servers.Run(t, servers.Etcd).URL(),
		"3 members":  servers.RunEtcdCluster(t, nil).URL(),
	} {
		findings, err := newStore(t, url).(driver.Diagnoser).Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v", findings)
		for _, want := range []string{"etcd 3.", size, "No alarms"} {
			if !strings.Contains(text, want) {
				t.Errorf("the diagnosis does not say %q: %s", want, text)
			}
		}
		for _, f := range findings {
			if f.Level == driver.LevelProblem {
				t.Errorf("%s: nothing is wrong, and %s is a problem: %s", size, f.Check, f.Message)
			}
		}
	}
}

// TestNobodyThere: an address where nothing listens is said soon.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(servers.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = lockOnce(t, server.URL())
	if !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock: %v; want that the store is unreachable", err)
	}
	if took := time.Since(start); took > limit/2 {
		t.Errorf("it took %v to say so", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start = time.Now()
	if _, err := open(ctx, "etcd://ann:s3cr3t@"+server.Addr()); err == nil {
		t.Error("the password was checked by nobody")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Open returned %v after the end of its context", took)
	}
}

// TestLateAttempt: an attempt without an answer that is carried out after its
// owner gave up is undone, also if the lease goes on for other locks.
func TestLateAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store := newStore(t, "etcd://"+p.Addr())
	kept, err := store.Acquire(t.Context(), request("kept"))
	if err != nil {
		t.Fatal(err)
	}
	lost := p.LoseReply(func(sent []byte) bool { return strings.Contains(string(sent), "late/") }, true)
	late := request("late")
	if _, err := store.Acquire(t.Context(), late); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire without an answer: %v", err)
	}
	<-lost
	eventually(t, "the attempt is undone", func() bool {
		err := store.Release(t.Context(), driver.Grant{Name: "late", Owner: late.Owner})
		return err == nil || errors.Is(err, driver.ErrNotHeld)
	})
	held, err := raw.Get(t.Context(), "kept/", clientv3.WithPrefix())
	if err != nil || len(held.Kvs) != 1 {
		t.Fatalf("%v, %v", held, err)
	}
	id := held.Kvs[0].Lease
	if _, err := raw.Put(t.Context(), "late/"+hex(id), "", clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
		t.Fatal(err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil {
		t.Fatal(errs[0])
	}
	next, err := store.Acquire(t.Context(), request("late"))
	if err != nil {
		t.Fatalf("the late attempt was not undone by a renewal: %v", err)
	}
	for _, grant := range []driver.Grant{kept, next} {
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("Release(%q): %v", grant.Name, err)
		}
	}
	eventually(t, "the lease of the late attempt ends with its last lock", func() bool {
		reply, err := raw.TimeToLive(t.Context(), clientv3.LeaseID(id))
		return err == nil && reply.TTL == -1
	})
}

// TestLateRelease: an unlock without an answer that is carried out later, or once more,
// deletes nobody else's lock, also if the lease goes on.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store := newStore(t, "etcd://"+p.Addr())
	first, err := store.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := raw.Get(t.Context(), "x/", clientv3.WithPrefix())
	if err != nil || len(before.Kvs) != 1 {
		t.Fatalf("%v, %v", before, err)
	}
	key := string(before.Kvs[0].Key)
	lost := p.LoseReply(func(sent []byte) bool { return strings.Contains(string(sent), key) }, true)
	if err := store.Release(t.Context(), first); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("Release without an answer: %v", err)
	}
	<-lost
	eventually(t, "it is released", func() bool {
		err := store.Release(t.Context(), first)
		return err == nil || errors.Is(err, driver.ErrNotHeld)
	})
	second, err := store.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Delete(t.Context(), key); err != nil { // what comes late
		t.Fatal(err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{second}); errs != nil {
		t.Errorf("after the late unlock: %v", errs[0])
	}
	if err := store.Release(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// TestUndoneWhileItHangs: an attempt that was given up while the server was silent is
// undone when the server answers again, also if who gave it up did not wait for that.
func TestUndoneWhileItHangs(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	store, rival := newStore(t, server.URL()), newStore(t, server.URL())
	kept, err := store.Acquire(t.Context(), request("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	given := request("given up")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := store.Acquire(ctx, given); err == nil {
		t.Fatal("a server that is stopped granted a lock")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := store.Release(ctx, driver.Grant{Name: given.Name, Owner: given.Owner}); err == nil {
		t.Fatal("a server that is stopped released a lock")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil { // what was sent before was carried out
		t.Fatal(errs[0])
	}
	eventually(t, "nobody has the lock", func() bool {
		grant, err := rival.Acquire(t.Context(), request("given up"))
		return err == nil && rival.Release(t.Context(), grant) == nil
	})
}

// TestBrokenAndWritten: a lock that was broken is neither released nor renewed because an
// attempt of it was carried out late.
func TestBrokenAndWritten(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(driver.Store, driver.Grant) error{
		"Release": func(store driver.Store, grant driver.Grant) error { return store.Release(context.Background(), grant) },
		"Renew": func(store driver.Store, grant driver.Grant) error {
			return errors.Join(store.Renew(context.Background(), []driver.Grant{grant})...)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			store, grant := brokenAndWritten(t)
			if err := call(store, grant); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%s of a lock that was broken: %v; want ErrNotHeld", what, err)
			}
		})
	}
}

// brokenAndWritten returns a grant whose lock was broken and whose key was written again
// by an attempt that was carried out late.
func brokenAndWritten(t *testing.T) (driver.Store, driver.Grant) {
	t.Helper()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store := newStore(t, "etcd://"+p.Addr())
	if _, err := store.Acquire(t.Context(), request("kept")); err != nil {
		t.Fatal(err)
	}
	lost := p.LoseReply(func(sent []byte) bool { return strings.Contains(string(sent), "x/") }, true)
	req := request("x")
	if _, err := store.Acquire(t.Context(), req); err == nil {
		t.Fatal("granted without an answer")
	}
	<-lost
	var grant driver.Grant
	eventually(t, "it is granted", func() (ok bool) {
		var err error
		grant, err = store.Acquire(t.Context(), req)
		return err == nil
	})
	there, err := raw.Get(t.Context(), "x/", clientv3.WithPrefix())
	if err != nil || len(there.Kvs) != 1 {
		t.Fatalf("%v, %v", there, err)
	}
	if err := newStore(t, server.URL()).(driver.Breaker).Break(t.Context(), "x", grant.Token); err != nil {
		t.Fatal(err)
	}
	kv := there.Kvs[0]
	if _, err := raw.Put(t.Context(), string(kv.Key), "", clientv3.WithLease(clientv3.LeaseID(kv.Lease))); err != nil {
		t.Fatal(err)
	}
	return store, grant
}

// A server that has never compacted any of many revisions is warned of, and one
// that has is not.
func TestCompactionIsDiagnosed(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	const revisions = 10_100
	var writers sync.WaitGroup
	for range 100 {
		writers.Go(func() {
			for range revisions / 100 {
				if _, err := raw.Put(t.Context(), "busy", ""); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	compaction := func() driver.Finding {
		findings, err := newStore(t, server.URL()).(driver.Diagnoser).Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Check == "compaction" {
				return f
			}
		}
		t.Fatal("Diagnose says nothing about compaction")
		return driver.Finding{}
	}
	if f := compaction(); f.Level != driver.LevelWarning {
		t.Errorf("nothing was compacted, and Diagnose says: %+v", f)
	}
	if _, err := raw.Compact(t.Context(), revisions/2); err != nil {
		t.Fatal(err)
	}
	if f := compaction(); f.Level != driver.LevelOK {
		t.Errorf("revisions were compacted, and Diagnose says: %+v", f)
	}
}
