package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Lost are the faults of a server that forgets locks while they are held, for
// rigs with Delete and Flush. Others on the same server notice.
var Lost = []Fault{
	{"a lock that is deleted while it is held", deleteHeld},
	{"a flush while a lock is held", flushHeld},
}

// Full are the faults of a server without memory that refuses to write, for rigs
// with Fill and Drain. Others on the same server notice.
var Full = []Fault{{"memory is full and nothing is evicted", memoryFull}}

// Evicted are those of a server that drops locks instead, for rigs with Fill and
// Drain. Others on the same server notice.
var Evicted = []Fault{{"memory is full and locks are evicted", evictHeld}}

func deleteHeld(t *testing.T, r Rig) {
	r.forgets(t, "deleted", func() error { return r.Delete(t.Context(), "deleted") })
}

func flushHeld(t *testing.T, r Rig) {
	r.forgets(t, "flushed", func() error { return r.Flush(t.Context()) })
}

// evictHeld: what is evicted is gone like what is deleted, the tokens perhaps
// with it.
func evictHeld(t *testing.T, r Rig) {
	r.forgets(t, "evicted", func() error {
		if err := r.Fill(t.Context()); err != nil {
			return err
		}
		r.mustBecomeFree(t, "evicted")
		return r.Drain(t.Context())
	})
}

// forgets: the holder notices at its next renewal, which does not bring the lock
// back, and the next token is larger.
func (r Rig) forgets(t *testing.T, name string, forget func() error) {
	t.Helper()
	lease := r.lock(t, r.client(t), name)
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	forgotten := time.Now()
	happens(t, lease.Context().Done(), "the end of the lease")
	if took := time.Since(forgotten); took > r.TTL/3+slack {
		t.Errorf("the loss was noticed after %v; renewals come every %v", took, r.TTL/3)
	}
	if token := r.grants(t, name, "the renewal must not bring it back"); token <= lease.Token() {
		t.Errorf("token %d after %d was forgotten", token, lease.Token())
	}
	unlockLost(t, lease)
	wait(t, r.TTL/2) // a renewal would have come
	r.grants(t, name, "no renewal may bring it back")
}

// mustBecomeFree waits until the store does not list the lock any more.
func (r Rig) mustBecomeFree(t testing.TB, name string) {
	t.Helper()
	store := r.open(t)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); wait(t, time.Millisecond) {
		if !listed(t, store, name) {
			return
		}
	}
	t.Fatalf("%q is still held after %v", name, limit)
}

func listed(t testing.TB, store driver.Store, name string) bool {
	t.Helper()
	if finder, ok := store.(driver.Finder); ok {
		_, held, err := finder.Find(t.Context(), name)
		if err != nil {
			t.Fatalf("Look: %v", err)
		}
		return held
	}
	lister, ok := store.(driver.Lister)
	if !ok {
		t.Fatal("the store can neither look at a lock nor list them")
	}
	for info, err := range lister.List(t.Context(), name) {
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		if info.Name == name {
			return true
		}
	}
	return false
}

// memoryFull: who asks for a lock is told why there is none, and none is taken;
// what is held is kept and can be given back.
func memoryFull(t *testing.T, r Rig) {
	c, rival, store := r.client(t), r.client(t), r.open(t)
	kept := r.lock(t, c, "kept")
	if err := r.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	refusals := map[string]error{}
	_, refusals["Lock"] = rival.Lock(t.Context(), "refused", dlock.WithTTL(r.TTL))
	_, refusals["LockAll"] = rival.LockAll(t.Context(), []string{"refused", "refused too"}, dlock.WithTTL(r.TTL))
	if rival.Traits().Fair {
		_, refusals["fair Lock"] = rival.Lock(t.Context(), "refused", dlock.WithTTL(r.TTL), dlock.WithFair())
	}
	for what, err := range refusals {
		if err == nil || errors.Is(err, dlock.ErrHeld) || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s on a server without memory: %v; want that it is out of memory", what, err)
		}
	}
	for _, name := range []string{"refused", "refused too"} {
		if listed(t, store, name) {
			t.Errorf("%q is held although its Lock failed", name)
		}
	}
	wait(t, r.TTL+r.TTL/2)
	if err := kept.Context().Err(); err != nil {
		t.Errorf("a lock that is held is not kept: %v", err)
	}
	unlock(t, kept)
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept", "refused", "refused too"} {
		r.grants(t, name, "nobody has it")
	}
}
