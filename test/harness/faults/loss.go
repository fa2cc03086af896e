package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// Lost are the faults of a server that loses locks while they are held. They need
// Delete and Flush. Other tests on the same server notice them.
var Lost = []Fault{
	{"a lock that is deleted while it is held", func(t *testing.T, r rig) {
		r.checkForgotten(t, "deleted", func() error { return r.Delete(t.Context(), "deleted") })
	}},
	{"a flush while a lock is held", func(t *testing.T, r rig) {
		r.checkForgotten(t, "flushed", func() error { return r.Flush(t.Context()) })
	}},
}

// Full are the faults of a server that rejects writes because its memory is full.
// They need Fill and Drain. Other tests on the same server notice them.
var Full = []Fault{{"memory is full and nothing is evicted", memoryFull}}

// Evicted are the faults of a server that evicts locks because its memory is
// full. They need Fill and Drain. Other tests on the same server notice them.
var Evicted = []Fault{{"memory is full and locks are evicted", evictHeld}}

// evictHeld checks that an evicted lock is lost like a deleted one. Its token may
// be evicted too.
func evictHeld(t *testing.T, r rig) {
	r.checkForgotten(t, "evicted", func() error {
		if err := r.Fill(t.Context()); err != nil {
			return err
		}
		r.mustBecomeFree(t, "evicted")
		return r.Drain(t.Context())
	})
}

// checkForgotten checks that the holder of a lock that the server forgot notices
// at its next renewal, that the renewal does not restore the lock, and that the
// next token is larger.
func (r rig) checkForgotten(t *testing.T, name string, forget func() error) {
	t.Helper()
	r.TTL *= 6 // so that the limit below is before the end of the trust
	lease := r.lock(t, r.client(t), name)
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	forgotten := time.Now()
	await.Event(t, lease.Context().Done(), "the end of the lease")
	inTime(t, forgotten, r.TTL/3+slack, "the loss was noticed")
	rises(t, r.mustBeFree(t, name, "the renewal must not restore it"), lease.Token())
	unlockLost(t, lease)
	wait(t, r.TTL/2) // longer than the time to the next renewal
	r.mustBeFree(t, name, "no renewal may restore it")
}

// mustBecomeFree waits until the store does not list the lock any more.
func (r rig) mustBecomeFree(t testing.TB, name string) {
	t.Helper()
	if !becomes(t, r.open(t), name, false, limit) {
		t.Fatalf("%q is still held after %v", name, limit)
	}
}

// becomes waits until the lock is held or not, and reports whether that happened in time.
func becomes(t testing.TB, store driver.Store, name string, held bool, limit time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); wait(t, time.Millisecond) {
		if listed(t, store, name) == held {
			return true
		}
	}
	return false
}

func listed(t testing.TB, store driver.Store, name string) bool {
	t.Helper()
	if finder, ok := store.(driver.Finder); ok {
		_, held, err := finder.Find(t.Context(), name)
		if err != nil {
			t.Fatalf("Find: %v", err)
		}
		return held
	}
	lister, ok := store.(driver.Lister)
	if !ok {
		t.Fatal("the store implements neither Finder nor Lister")
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

// memoryFull checks that an acquisition fails with an error that names the reason
// and takes no lock. A held lock is kept and can be released.
func memoryFull(t *testing.T, r rig) {
	c, contender, store := r.client(t), r.client(t), r.open(t)
	kept := r.lock(t, c, "kept")
	if err := r.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	refusals := map[string]error{}
	_, refusals["Lock"] = contender.Lock(t.Context(), "refused", dlock.WithTTL(r.TTL))
	_, refusals["LockAll"] = contender.LockAll(t.Context(), []string{"refused", "refused too"}, dlock.WithTTL(r.TTL))
	if contender.Traits().Fair {
		_, refusals["fair Lock"] = contender.Lock(t.Context(), "refused", dlock.WithTTL(r.TTL), dlock.WithFair())
	}
	for what, err := range refusals {
		if err == nil || errors.Is(err, dlock.ErrHeld) || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s on a server without memory: %v; want an error about the memory", what, err)
		}
	}
	for _, name := range []string{"refused", "refused too"} {
		if listed(t, store, name) {
			t.Errorf("%q is held although its Lock failed", name)
		}
	}
	wait(t, r.TTL+r.TTL/2)
	stillTrusted(t, kept)
	unlock(t, kept)
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept", "refused", "refused too"} {
		r.mustBeFree(t, name, "it is free")
	}
}
