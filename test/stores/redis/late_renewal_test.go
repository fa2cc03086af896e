package redis

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestNothingShortensALock: a renewal or a repeated attempt with a shorter TTL, carried out after
// the owner was promised more, does not shorten the lock.
func TestNothingShortensALock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	const long, short = time.Hour, time.Minute
	eachProtocol(t, func(t *testing.T, protocol string) {
		fresh := func() driver.Store { // does not know the server's clock yet
			return newStore(t, protocol, &redis.Options{Addr: server.Addr()})
		}
		store := fresh()
		acquireAndRelease(t, store, "warm-"+protocol)
		for name, late := range map[string]func(grant driver.Grant, req driver.Request) error{
			"Renew": func(grant driver.Grant, _ driver.Request) error {
				grant.TTL = short
				if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
					return errs[0]
				}
				return nil
			},
			"Acquire": func(_ driver.Grant, req driver.Request) error {
				_, err := store.Acquire(t.Context(), req)
				return err
			},
			"Acquire by the server's clock": func(_ driver.Grant, req driver.Request) error {
				_, err := fresh().Acquire(t.Context(), req)
				return err
			},
			"AcquireAll": func(_ driver.Grant, req driver.Request) error {
				_, err := store.(driver.BatchAcquirer).AcquireAll(t.Context(), []driver.Request{req})
				return err
			},
			"fair": func(_ driver.Grant, req driver.Request) error {
				req.Fair = protocol == "redisson"
				_, err := store.Acquire(t.Context(), req)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				req := driver.Request{Name: t.Name(), Owner: driver.NewOwner(), TTL: long}
				grant, err := store.Acquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				req.TTL = short
				if err := late(grant, req); err != nil {
					t.Fatal(err)
				}
				if left := raw.PTTL(t.Context(), req.Name).Val(); left <= long/2 {
					t.Errorf("the lock expires in %v; want that it lasts for what was promised, %v", left, long)
				}
			})
		}
	})
}

// TestLateRenewalChangesNothing: a renewal arrives after its holder has released, and another
// owner may have the lock.
func TestLateRenewalChangesNothing(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	eachProtocol(t, func(t *testing.T, protocol string) {
		later := newStore(t, protocol, &redis.Options{Addr: server.Addr()})
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()})
		call := func(ctx context.Context, grant driver.Grant) { _ = store.Renew(ctx, []driver.Grant{grant}) }
		for _, taken := range []bool{false, true} {
			for _, warm := range []bool{true, false} { // whether the server knows the script
				req := driver.Request{Name: protocol, Owner: driver.NewOwner(), TTL: time.Hour}
				grant, err := store.Acquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if warm {
					call(t.Context(), grant)
					_ = store.Release(t.Context(), grant)
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
				deliver := make(chan struct{})
				passed := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte(req.Name)) },
					func(*proxy.Conn) { cancel(); <-deliver })
				call(ctx, grant)
				if err := store.Release(t.Context(), grant); err != nil {
					t.Fatal(err)
				}
				var other driver.Grant
				if taken {
					if other, err = later.Acquire(t.Context(), driver.Request{Name: req.Name, Owner: driver.NewOwner(), TTL: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				close(deliver)
				<-passed
				if !p.Settle(20 * time.Second) {
					t.Fatal("the server does not answer")
				}
				if taken {
					if left := raw.PTTL(t.Context(), req.Name).Val(); left > time.Minute {
						t.Errorf("a late renewal made another one's lock last for %v", left)
					}
					if err := later.Release(t.Context(), other); err != nil {
						t.Errorf("a late renewal took another one's lock: %v", err)
					}
				}
				if raw.Exists(t.Context(), req.Name).Val() != 0 {
					t.Error("a late renewal left a lock")
				}
			}
		}
	})
}
