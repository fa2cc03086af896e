package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestUnusualNamesAreLocked(t *testing.T) {
	t.Parallel()
	names := []string{
		"{", "}", "{}", "a{b", "a}b", "{a}b", "a{}{b}", "}{", "%7B", "a b", "*", "?", "[a]", `\`, "redisson_lock_token:{a}", "dlock:name:x",
		strings.Repeat("x", 255), strings.Repeat("{", 255), strings.Repeat("锁", 85), ":", "::", "a:1:2",
	}
	for topology, start := range map[string]func(testing.TB, ...string) topology{"single": single, "cluster": cluster} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			top := start(t, inMemory...)
			for _, protocol := range protocols {
				_, client := openURL(t, top.url+"?protocol="+protocol)
				_, other := openURL(t, top.url+"?protocol="+protocol)
				for _, name := range names {
					name += protocol
					if len(name) > 255 {
						name = name[:255]
						name = strings.ToValidUTF8(name, "")
					}
					lease, err := client.TryLock(t.Context(), name)
					if err != nil {
						t.Errorf("TryLock(%q): %v", name, err)
						continue
					}
					if _, err := other.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrHeld) {
						t.Errorf("TryLock(%q) of another client: %v; want ErrHeld", name, err)
					}
					listed := 0
					for info, err := range other.Locks(t.Context(), name) {
						if err != nil {
							t.Fatal(err)
						}
						if info.Name == name && info.Token == lease.Token() {
							listed++
						}
					}
					if listed != 1 {
						t.Errorf("%q is listed %d times; want once", name, listed)
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock(%q): %v", name, err)
					}
				}
				for _, name := range []string{"", "a\nb", "a\r\nDEL x", strings.Repeat("x", 256), "\xff"} {
					if _, err := client.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrBadName) {
						t.Errorf("TryLock(%q): %v; want ErrBadName", name, err)
					}
				}
			}
		})
	}
}

// TestBracedNameIsADistinctLock: a waiter for {a} does not block a.
func TestBracedNameIsADistinctLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	store, _ := openURL(t, server.URL())
	acquire(t, store, "{a}")
	waiter := requestFor("{a}")
	waiter.Fair, waiter.Queue = true, true
	if _, err := store.Acquire(t.Context(), waiter); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("want ErrHeld, got: %v", err)
	}
	other := requestFor("a")
	other.Fair, other.Queue = true, true
	if _, err := store.Acquire(t.Context(), other); err != nil {
		t.Errorf("a is free: %v", err)
	}
}
