package redis

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestRecommendedPermissionsSuffice: the users of docs/stores/redis.md can do everything that dlock
// does, and cannot flush the server.
func TestRecommendedPermissionsSuffice(t *testing.T) {
	text, err := os.ReadFile("../../../docs/stores/redis.md")
	must(t, err)
	var rules [][]any
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ACL SETUSER ") {
			var words []any
			for word := range strings.FieldsSeq(line) {
				words = append(words, strings.Trim(word, "'"))
			}
			rules = append(rules, words)
		}
	}
	if len(rules) != 2 {
		t.Fatalf("docs/stores/redis.md has %d users; want one, and one for a part of the names", len(rules))
	}
	for name, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster, "shard": shard} {
		for _, rule := range rules {
			t.Run(name+"/"+rule[2].(string), func(t *testing.T) {
				t.Parallel()
				top := start(t)
				for _, server := range top.servers {
					must(t, server.Do(t.Context(), rule...).Err())
				}
				user := rule[2].(string) + ":secret@"
				for _, protocol := range protocols {
					url := strings.Replace(top.url, "://", "://"+user, 1) + "?protocol=" + protocol
					mayDoEverything(t, url, "orders:", protocol == "redisson")
				}
				limited := redis.NewClient(&redis.Options{Addr: top.servers[0].Options().Addr, Username: rule[2].(string), Password: "secret"})
				defer limited.Close()
				if err := limited.FlushAll(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("FLUSHALL: %v; want that it is not permitted", err)
				}
			})
		}
	}
}

// mayDoEverything makes every call that needs a permission, with names that begin with prefix.
func mayDoEverything(t *testing.T, url, prefix string, redisson bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, client := openURL(t, url)
	_, other := openURL(t, url)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %s: %v", url, what, err)
		}
	}
	for _, opts := range [][]dlock.Option{nil, {dlock.WithFair()}, {dlock.WithLimit(1)}, {dlock.WithLimit(1), dlock.WithFair()}} {
		if opts != nil && !redisson {
			continue
		}
		lease, err := client.Lock(ctx, prefix+"1", opts...)
		if err != nil {
			t.Fatalf("%s: Lock: %v", url, err)
		}
		woken := make(chan error, 1)
		begun := make(chan struct{})
		go func() {
			close(begun)
			lease, err := other.Lock(ctx, prefix+"1", opts...)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			woken <- err
		}()
		<-begun
		info, found, err := client.Find(ctx, prefix+"1")
		if must("Find", err); !found || info.Token != lease.Token() {
			t.Errorf("%s: Find: %+v, %v", url, info, found)
		}
		must("Unlock", lease.Unlock(ctx))
		must("Lock by another", <-woken)
	}
	if redisson {
		lease, err := client.Lock(ctx, prefix+"1")
		must("Lock", err)
		must("Downgrade", lease.Downgrade(ctx))
		reader, err := other.Lock(ctx, prefix+"1", dlock.WithShared())
		must("Lock by another reader", err)
		must("Unlock", errors.Join(lease.Unlock(ctx), reader.Unlock(ctx)))
	}
	grant := acquireOne(t, store, prefix+"2")
	must("Renew", errors.Join(store.Renew(ctx, []driver.Grant{grant})...))
	must("Break", other.Break(ctx, prefix+"2", grant.Token))
	if leases, err := client.LockAll(ctx, []string{prefix + "3", prefix + "4"}); err != nil {
		must("LockAll", err)
	} else {
		must("Unlock of all", leases.Unlock(ctx))
	}
	for _, err := range client.Locks(ctx, prefix) {
		must("Locks", err)
	}
	findings, err := client.Diagnose(ctx)
	must("Diagnose", err)
	for _, f := range findings {
		if f.Level != driver.LevelOK && f.Check != "replication" && f.Check != "cluster" {
			t.Errorf("%s: %+v", url, f)
		}
	}
}

func TestRefusedUserGetsTheReason(t *testing.T) {
	t.Parallel()
	server := servers.RunRedisTLS(t)
	ca := "?ca=" + url.QueryEscape(server.CAFile)
	for _, protocol := range protocols {
		query := ca + "&protocol=" + protocol
		_, noScripts := openURL(t, server.URLFor(servers.NoScripts)+query)
		refused(t, noScripts, "orders:1", "lacks a permission", false)

		wrong := servers.Anything
		wrong.Password = "not it"
		_, client := openURL(t, server.URLFor(wrong)+query)
		refused(t, client, "orders:1", "wrong user or password", false)

		_, client = openURL(t, "rediss://"+server.Addr()+query)
		refused(t, client, "orders:1", "wants a password", false)

		_, client = openURL(t, "redis://"+server.Addr()+"?protocol="+protocol)
		refused(t, client, "orders:1", "", true)

		_, client = openURL(t, server.URL()) // without the authority
		refused(t, client, "orders:1", "certificate", true)

		_, orders := openURL(t, server.URLFor(servers.OrdersOnly)+query)
		refused(t, orders, "invoices:1", "lacks a permission", false)
		if protocol == "redisson" {
			lease, err := orders.Lock(t.Context(), "orders:1")
			if err != nil {
				t.Fatalf("a user with the right to the keys of a lock is refused: %v", err)
			}
			unlock(t, lease)
		}
	}
}

// TestLockWithoutExpiryIsNeverLeft: a user without the right to set an expiry gets no lock.
func TestLockWithoutExpiryIsNeverLeft(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	must(t, raw.Do(t.Context(), "acl", "setuser", "eternal", "on", ">pw", "~*", "&*", "+@all", "-pexpire").Err())
	_, warm := openURL(t, "redis://eternal:pw@"+server.Addr())
	for range 2 { // before and after the server's clock is known
		refused(t, warm, "a", "lacks a permission", false)
		if _, err := warm.LockAll(t.Context(), []string{"b", "c"}); err == nil {
			t.Error("LockAll works")
		}
		for _, name := range []string{"a", "b", "c"} {
			if n := raw.Exists(t.Context(), name).Val(); n != 0 {
				t.Errorf("%q is left, and expires in %v", name, raw.PTTL(t.Context(), name).Val())
			}
		}
	}
}

// TestFailedRepetitionKeepsTheLock: an attempt, a hand-over and a token that is raised keep the
// lock that the owner has if the user has lost the right to set an expiry.
func TestFailedRepetitionKeepsTheLock(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	permit := func(rules ...any) {
		must(t, raw.Do(t.Context(), append([]any{"acl", "setuser", "changing", "on", ">pw", "~*", "&*", "+@all"}, rules...)...).Err())
	}
	permit()
	store, _ := openURL(t, "redis://changing:pw@"+server.Addr())
	batch := store.(driver.BatchAcquirer)
	var reqs []driver.Request
	for _, name := range []string{"a", "b", "c"} {
		reqs = append(reqs, inMode(driver.Mode{}, name))
	}
	grants, err := batch.AcquireAll(t.Context(), reqs[:2])
	must(t, err)
	permit("-pexpire")
	for i := range reqs {
		reqs[i].TTL *= 2
	}
	if _, err := batch.AcquireAll(t.Context(), reqs); err == nil {
		t.Error("AcquireAll works without the right to set an expiry")
	}
	permit()
	for i, err := range store.Renew(t.Context(), grants) {
		if err != nil {
			t.Errorf("Renew of %q: %v; want it to be held still", grants[i].Name, err)
		}
	}
	if n := raw.Exists(t.Context(), "c").Val(); n != 0 {
		t.Error("the lock that was not held before is left")
	}
}
