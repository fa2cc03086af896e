package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/go-zookeeper/zk"
)

// TestMissingRootIsAnError: with create=false a missing root is an error, and the store
// creates nothing.
func TestMissingRootIsAnError(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	store := open(t, server.URL()+"/no/such/root?create=false")
	_, err := store.Acquire(t.Context(), request("n"))
	if !errors.Is(err, driver.ErrMisconfigured) || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "the root does not exist in ZooKeeper: /no/such/root") {
		t.Errorf("Acquire: %v; want that the root does not exist", err)
	}
	if there, _, err := conn.Exists("/no"); err != nil || there {
		t.Errorf("the store created a node: %v, %v", there, err)
	}
	// The root works as soon as it exists, and the error returns when it is removed.
	want.OK(t, want.Err(conn.Create("/no", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))))
	other := open(t, server.URL()+"/no?create=false")
	want.Release(t, other, want.Acquire(t, other, request("n")))
	await.Until(t, "the root is empty", func() bool { return conn.Delete("/no", -1) == nil })
	if _, err := other.Acquire(t.Context(), request("m")); err == nil || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "the root does not exist in ZooKeeper: /no") {
		t.Errorf("Acquire without the root that was there: %v", err)
	}
}

// TestVanishedRootIsCreatedAgain: the store creates a missing root, also one that was removed
// while the store was open.
func TestVanishedRootIsCreatedAgain(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	store := open(t, server.URL()+"/a/b")
	for range 2 {
		want.Release(t, store, want.Acquire(t, store, request("n")))
		await.Until(t, "the root is removed", func() bool { return conn.Delete("/a/b", -1) == nil })
	}
}

// TestMissingRightsAreDenied: a user without rights, or with a wrong password, gets ErrDenied and
// no lock, and leaves no node.
func TestMissingRightsAreDenied(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	want.OK(t, want.Err(conn.Create("/theirs", nil, zk.FlagPersistent, zk.DigestACL(zk.PermAll, "ann", "right"))))
	at := func(user string) string {
		return strings.Replace(server.URL(), "://", "://"+user, 1) + "/theirs?acl=creator"
	}
	ann := open(t, at("ann:right@"))
	grant := want.Acquire(t, ann, request("n"))
	for _, url := range []string{at("ann:wrong@"), at("bob:right@"), strings.TrimSuffix(at(""), "?acl=creator")} {
		store := open(t, url)
		for _, name := range []string{"n", "m"} {
			_, err := store.Acquire(t.Context(), request(name))
			if !errors.Is(err, zk.ErrNoAuth) || !errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "wrong user or password") {
				t.Errorf("%s: Acquire(%q): %v; want ErrDenied", url, name, err)
			}
			if strings.Contains(err.Error(), "right") {
				t.Errorf("the password is in %q", err)
			}
		}
		findings, err := store.Diagnose(t.Context())
		if err != nil || len(findings) == 0 || findings[0].Level != driver.LevelProblem {
			t.Errorf("%s: the diagnosis is %v, %v; want a problem", url, findings, err)
		}
	}
	want.Release(t, ann, grant)
	findings, err := ann.Diagnose(t.Context())
	if err != nil || len(findings) == 0 || findings[0].Level != driver.LevelOK {
		t.Errorf("the diagnosis is %v, %v", findings, err)
	}
	want.OK(t, conn.AddAuth("digest", []byte("ann:right")))
	await.Until(t, "nothing is left", func() bool {
		children, _, err := conn.Children("/theirs")
		return err == nil && len(children) == 0
	})
}

// TestGrantPromisesNegotiatedTimeout: a grant promises three quarters of the timeout that the
// server has granted, or less if the session began a while before.
func TestGrantPromisesNegotiatedTimeout(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper) // which allows 200 ms to a minute
	for asked, granted := range map[string]time.Duration{"100ms": 200 * time.Millisecond, "10h": time.Minute, "5s": 5 * time.Second} {
		store := open(t, server.URL()+"?timeout="+asked)
		want := granted * 3 / 4
		await.Until(t, fmt.Sprintf("a grant that promises at least half of %v", want), func() bool {
			req := request("n-" + asked)
			req.TTL = time.Hour
			grant, err := store.Acquire(t.Context(), req)
			if err != nil { // a short session often ends on a busy machine
				return false
			}
			if grant.TTL > want {
				t.Errorf("asked for a timeout of %s, granted %v: the grant promises %v; want %v at most", asked, granted, grant.TTL, want)
			}
			if grant.TTL < want/2 { // the answer was slow
				_ = store.Release(t.Context(), grant) // if that fails, the session ends soon
				return false
			}
			return true
		})
		var findings []driver.Finding
		await.Until(t, "a diagnosis", func() bool {
			var err error
			findings, err = store.Diagnose(t.Context())
			return err == nil
		})
		for _, f := range findings {
			if f.Check == "session_timeout" && (f.Level == driver.LevelOK) != (asked == "5s") {
				t.Errorf("with a timeout of %s the diagnosis is %+v", asked, f)
			}
		}
	}
}

// TestUnreachableServerIsReported: no server at the address, and a server of another kind.
func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		reportedSoon(t, "zookeeper://127.0.0.1:1", "refused")
	})
	redis := servers.Run(t, servers.Redis)
	for url, reason := range map[string]string{
		"zookeeper://no-such-host.invalid": "no-such-host",
		"zookeeper://" + redis.Addr():      "no session",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			c := client(t, open(t, url), nil)
			for _, err := range open(t, url).List(t.Context(), "") { // a context without a deadline
				if !errors.Is(err, driver.ErrUnreachable) {
					t.Errorf("List: %v; want ErrUnreachable", err)
				}
			}
			start := time.Now()
			if _, err := c.TryLock(t.Context(), "n"); !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), reason) {
				t.Errorf("TryLock: %v; want ErrUnreachable, and %q", err, reason)
			}
			if took := time.Since(start); took > limit/2 {
				t.Errorf("TryLock took %v", took)
			}
		})
	}
}

const maxConnections = 6

// limited is a ZooKeeper that enforces quotas and accepts few connections.
func limited() *servers.Kind {
	kind := *servers.ZooKeeper
	kind.Args = func(in servers.Instance) []string {
		return slices.Insert(servers.ZooKeeper.Args(in), 0, "-Dzookeeper.enforceQuota=true")
	}
	kind.Configure = func(in servers.Instance) error {
		if err := servers.ZooKeeper.Configure(in); err != nil {
			return err
		}
		file, err := os.OpenFile(filepath.Join(in.Dir, "zoo.cfg"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(fmt.Sprintf("\nmaxClientCnxns=%d\n", maxConnections))
		return errors.Join(err, file.Close())
	}
	return &kind
}

// TestLimitsOfTheServerAreNamed: an error says which limit of the server an attempt has met.
func TestLimitsOfTheServerAreNamed(t *testing.T) {
	t.Parallel()
	server, conn := start(t, limited())
	for _, node := range []struct{ path, data string }{
		{"/full", ""},
		{"/zookeeper/quota/full", ""},
		{"/zookeeper/quota/full/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2"},
		{"/zookeeper/quota/full/zookeeper_stats", "count=1,bytes=0"},
	} {
		if _, err := conn.Create(node.path, []byte(node.data), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", node.path, err)
		}
	}
	store := open(t, server.URL())
	wantLimit := func(what string, store driver.Store, note int, kind error, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req := request("x")
		req.Holder.Note = strings.Repeat("n", note)
		start := time.Now()
		_, err := store.Acquire(ctx, req)
		if kind != nil && !errors.Is(err, kind) || kind != driver.ErrUnreachable && errors.Is(err, driver.ErrUnreachable) || err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Acquire: %.300v after %v; want %v, and %q", what, err, time.Since(start), kind, text)
		}
	}
	wantLimit("a quota", open(t, server.URL()+"/full"), 0, driver.ErrMisconfigured, "quota")
	wantLimit("a note that the store does not send", store, 300_000, nil, "note")
	for range maxConnections - 3 {
		if _, _, err := admin(t, server.Addr()).Exists("/"); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit("too many connections", open(t, server.URL()), 0, driver.ErrUnreachable, "maxClientCnxns")
}
