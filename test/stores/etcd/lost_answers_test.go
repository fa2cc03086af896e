package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestLateAttemptIsUndone: an attempt that was not answered and is carried out after its owner
// gave up is undone, also if the lease goes on for other locks.
func TestLateAttemptIsUndone(t *testing.T) {
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

// TestLateReleaseDeletesNoLaterLock: a release that was not answered and is carried out
// later, or twice, deletes no other lock, also if the lease goes on.
func TestLateReleaseDeletesNoLaterLock(t *testing.T) {
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
	eventually(t, "the lock is released", func() bool {
		err := store.Release(t.Context(), first)
		return err == nil || errors.Is(err, driver.ErrNotHeld)
	})
	second, err := store.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Delete(t.Context(), key); err != nil { // as if it arrived late
		t.Fatal(err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{second}); errs != nil {
		t.Errorf("Renew after the late release: %v", errs[0])
	}
	if err := store.Release(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// TestAbandonedAttemptIsUndoneAfterAPause: an attempt that was abandoned while the server was
// paused is undone when the server answers again, also if the caller did not wait for that.
func TestAbandonedAttemptIsUndoneAfterAPause(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	store, other := newStore(t, server.URL()), newStore(t, server.URL())
	kept, err := store.Acquire(t.Context(), request("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	abandoned := request("abandoned")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := store.Acquire(ctx, abandoned); err == nil {
		t.Fatal("a paused server granted a lock")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := store.Release(ctx, driver.Grant{Name: abandoned.Name, Owner: abandoned.Owner}); err == nil {
		t.Fatal("a paused server released a lock")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil { // what was sent before was carried out
		t.Fatal(errs[0])
	}
	eventually(t, "the lock is free", func() bool {
		grant, err := other.Acquire(t.Context(), request("abandoned"))
		return err == nil && other.Release(t.Context(), grant) == nil
	})
}

// TestLateWriteDoesNotReviveABrokenLock: a broken lock is neither released nor renewed because
// one of its attempts was carried out late.
func TestLateWriteDoesNotReviveABrokenLock(t *testing.T) {
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
				t.Errorf("%s of a broken lock: %v; want ErrNotHeld", what, err)
			}
		})
	}
}

// brokenAndWritten returns a grant whose lock was broken, and whose key was written again by an attempt
// that was carried out late.
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
	eventually(t, "the lock is granted", func() (ok bool) {
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

// TestCallWithoutAnswerIsUnreachable: a call whose context ends before the server answers returns
// the context's error with ErrUnreachable, and says that there was no answer.
func TestCallWithoutAnswerIsUnreachable(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Etcd).Addr())
	store := storeOver(t, p.Addr(), nil)
	grant := (&lateRig{t: t}).acquire(store, request("held"))
	p.Hold()
	t.Cleanup(p.Deliver) // so that Close reaches the server
	faults.NoAnswer(t, store, grant, request("abandoned"), "an earlier call has not ended")
}
