package memcached

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// full reports whether err is that of a server without memory.
func full(err error) bool {
	return errors.Is(err, driver.ErrUnreachable) && strings.Contains(err.Error(), "memory")
}

// TestFullServerKeepsHeldLocks: a full server that evicts nothing refuses new locks with a clear
// error. A held lock stays: it cannot be renewed, and its lease ends in time if there is no memory until
// then.
func TestFullServerKeepsHeldLocks(t *testing.T) {
	t.Parallel()
	r := onServer("-m", "2", "-M")(t)
	store := openNow(t, r.Server.Addr())
	held := take(t, store, "held")
	client := dlock.New(store, nil)
	defer client.Close()
	short, err := client.Lock(bounded(t), "short", dlock.WithTTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := openNow(t, r.Server.Addr())
	ask := func(name string) error {
		_, err := other.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
		return err
	}
	if err := ask("refused"); !full(err) {
		t.Errorf("Acquire on a full server: %v; want an error about memory", err)
	}
	if _, taken, err := store.(driver.Finder).Find(t.Context(), "refused"); taken || err != nil {
		t.Errorf("after an Acquire that failed: held %v, %v", taken, err)
	}
	for range 2 { // the first must not delete what the second finds
		if err := ask("held"); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire of a held lock on a full server: %v; want ErrHeld", err)
		}
	}
	if errs := store.Renew(t.Context(), []driver.Grant{held}); errs == nil || !full(errs[0]) {
		t.Errorf("Renew on a full server: %v; want an error about memory", errs)
	}
	if err := store.Release(t.Context(), held); err != nil {
		t.Errorf("Release on a full server: %v", err)
	}
	happens(t, short.Context().Done(), "the end of the lease")
	if err := ask("short"); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire after the end of a lease that could not be renewed: %v; want ErrHeld", err)
	}
}

// TestTooLargeHolderIsRejected: a request whose holder is too large for the server is rejected, and
// does not delete the lock of another owner.
func TestTooLargeHolderIsRejected(t *testing.T) {
	t.Parallel()
	store := openNow(t, servers.Run(t, servers.Memcached, "-I", "512k").Addr())
	ask := func(size int) error {
		_, err := store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute,
			Holder: driver.Holder{Note: strings.Repeat("x", size)}})
		return err
	}
	for size, want := range map[int]string{600_000: "too large", 2_000_000: "too long"} {
		if err := ask(size); !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Acquire with a note of %d bytes: %.200v; want an error that says %s", size, err, want)
		}
	}
	held := take(t, store, "a")
	for range 2 { // the first must not delete what the second finds
		if err := ask(600_000); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire of a held lock with a long note: %.200v; want ErrHeld", err)
		}
	}
	if err := store.Release(t.Context(), held); err != nil {
		t.Error(err)
	}
}
