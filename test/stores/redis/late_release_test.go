package redis

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestReleaseDoesNotWaitForStuckAttempt: the first attempt of an owner is stuck in the client, and
// a second attempt is granted. The release of the grant does not wait for the first attempt, which
// is undone when it is carried out.
func TestReleaseDoesNotWaitForStuckAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range []string{"redisson", "plain"} {
		hook := &delaying{}
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()}, hook)
		acquireAndRelease(t, store, "warm "+protocol)
		req := driver.Request{Name: "a " + protocol, Owner: driver.NewOwner(), TTL: time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), abandonAfter)
		defer cancel()
		stuck := hook.arm(req.Name, cancel)
		if _, err := store.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
			t.Fatal("the attempt that is stuck:", err)
		}
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), abandonAfter)
		defer cancel()
		if err := store.Release(limited, grant); err != nil {
			t.Errorf("%s: Release = %v; want nil while an earlier attempt is stuck", protocol, err)
		}
		acquireAndRelease(t, store, req.Name) // the lock is free
		close(stuck.free)
		<-stuck.ended
		eventually(t, "the stuck attempt is undone", func() bool {
			_, held, err := store.Find(t.Context(), req.Name)
			return err == nil && !held
		})
	}
}

// TestUndoDoesNotOvertakeRelease: the answer to the first attempt of an owner is lost, and its
// second attempt is granted. A slow release still finds the lock: the first attempt is not undone
// meanwhile.
func TestUndoDoesNotOvertakeRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range []string{"redisson", "plain"} {
		hook := &delaying{}
		p := proxy.Run(t, server.Addr())
		store := newStore(t, protocol, &redis.Options{Addr: p.Addr()}, hook)
		acquireAndRelease(t, store, "warm "+protocol)
		req := driver.Request{Name: "a " + protocol, Owner: driver.NewOwner(), TTL: time.Minute}
		lost := p.LoseReply(func(request []byte) bool { return bytes.Contains(request, []byte(req.Name)) }, true)
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnreachable) {
			t.Fatal("the attempt without an answer:", err)
		}
		<-lost
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var slow *delayedCommand
		slow = hook.arm(req.Name, func() { time.AfterFunc(500*time.Millisecond, func() { close(slow.free) }) })
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("%s: Release of a lock that is held = %v", protocol, err)
		}
	}
}

// TestLateReleaseReleasesNoOtherHolder: a Release that is repeated when another owner has the lock
// releases nothing: with the whole grant, with the token alone and with the owner alone.
func TestLateReleaseReleasesNoOtherHolder(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	eachProtocol(t, func(t *testing.T, protocol string) {
		store := newStore(t, protocol, &redis.Options{Addr: server.Addr()})
		acquire := func() driver.Grant {
			grant, err := store.Acquire(t.Context(), driver.Request{Name: protocol, Owner: driver.NewOwner(), TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			return grant
		}
		old := acquire()
		if err := store.Release(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		current := acquire()
		for what, late := range map[string]driver.Grant{
			"the whole grant": old,
			"the token":       {Name: old.Name, Owner: old.Owner, Token: old.Token},
			"the owner":       {Name: old.Name, Owner: old.Owner},
		} {
			if err := store.Release(t.Context(), late); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("a late release with %s: %v; want ErrNotHeld", what, err)
			}
		}
		if err := store.Release(t.Context(), current); err != nil {
			t.Errorf("the current holder's lock: %v", err)
		}
	})
}

// TestReleaseIgnoresTheHoldersDescription: an owner that asked again with another description still
// owns the lock.
func TestReleaseIgnoresTheHoldersDescription(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		req := driver.Request{Name: protocol, Owner: driver.NewOwner(), TTL: time.Minute, Holder: driver.Holder{Note: "first"}}
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		fresh, _ := openURL(t, server.URL()+"?protocol="+protocol) // rewrites the holder value
		req.Holder.Note = "second"
		if _, err := fresh.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if err := store.Release(t.Context(), grant); err != nil {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}
