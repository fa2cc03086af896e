package redis

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestLeastPermissions: the users that docs/stores/redis.md recommends can do everything
// that dlock does, and cannot flush the server.
func TestLeastPermissions(t *testing.T) {
	text, err := os.ReadFile("../../../docs/stores/redis.md")
	if err != nil {
		t.Fatal(err)
	}
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
	for name, start := range map[string]func(testing.TB) topology{"single": single, "cluster": cluster, "shard": shard} {
		for _, rule := range rules {
			t.Run(name+"/"+rule[2].(string), func(t *testing.T) {
				t.Parallel()
				top := start(t)
				for _, server := range top.servers {
					if err := server.Do(t.Context(), rule...).Err(); err != nil {
						t.Fatal(err)
					}
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

// mayDoEverything makes every call that needs a permission, with names that begin
// with prefix.
func mayDoEverything(t *testing.T, url, prefix string, fair bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, client := openURL(t, url)
	_, other := openURL(t, url)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %s: %v", url, what, err)
		}
	}
	for _, opts := range [][]dlock.Option{nil, {dlock.WithFair()}} {
		if opts != nil && !fair {
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
	lease, err := client.Lock(ctx, prefix+"2", dlock.WithTTL(time.Second))
	must("Lock", err)
	select { // long enough for renewals
	case <-lease.Context().Done():
		t.Errorf("%s: the lock is not renewed: %v", url, context.Cause(lease.Context()))
	case <-time.After(2 * time.Second):
	}
	must("Break", other.Break(ctx, prefix+"2", lease.Token()))
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
