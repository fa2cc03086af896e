package redis

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// mustWait demands that a request which queues is refused, and returns its channel behind that of
// the lock.
func mustWait(t *testing.T, store driver.Store, mode driver.Mode, name string, fair bool) string {
	t.Helper()
	req := inMode(mode, name)
	req.Fair, req.Queue = fair, true
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of %q in mode %v: %v; want ErrHeld", name, mode, err)
	}
	suffix := map[driver.Mode]string{shared: "r", permits: "p"}[mode]
	return ":" + req.Owner.Hex() + suffix
}

// published returns what follows the channel of a lock in the channels on which call makes the
// server publish.
func published(t *testing.T, raw *redis.Client, name string, call func()) []string {
	t.Helper()
	channel, end := "redisson_lock__channel:{"+name+"}", "end:{"+name+"}"
	sub := raw.PSubscribe(t.Context(), "*{"+name+"}*")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil { // the confirmation
		t.Fatal(err)
	}
	call()
	must(t, raw.Publish(t.Context(), end, "").Err())
	found := make(map[string]bool)
	for {
		message, err := sub.ReceiveMessage(t.Context())
		must(t, err)
		if message.Channel == end {
			return slices.Sorted(maps.Keys(found))
		}
		if suffix, ok := strings.CutPrefix(message.Channel, channel); ok {
			found[suffix] = true
		}
	}
}

// TestReleaseNotifiesOnlyWaitersThatMayBeGranted: a release notifies each waiter that may be
// granted the lock then, in the queue and outside of it, and no other waiter of the queue.
func TestReleaseNotifiesOnlyWaitersThatMayBeGranted(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	exclusive := driver.Mode{}
	const everyone = "" // the channel of the lock
	acquireFair := func(name string) driver.Grant {
		req := inMode(exclusive, name)
		req.Fair = true
		return mustAcquire(t, store, req)
	}
	wait := func(mode driver.Mode, name string) string { return mustWait(t, store, mode, name, true) }
	for name, test := range map[string]func(name string) (call func(), want []string){
		"a writer with a place beside a fair reader": func(name string) (func(), []string) {
			reader := mustAcquire(t, store, inMode(shared, name))
			mustWait(t, store, exclusive, name, false)
			fair := wait(shared, name)
			return func() { mustRelease(t, store, reader) }, []string{everyone, fair}
		},
		"a reader outside of a queue of readers": func(name string) (func(), []string) {
			holder, fair := acquireFair(name), wait(shared, name)
			return func() { mustRelease(t, store, holder) }, []string{everyone, fair}
		},
		"a reader outside of a queue of readers after a downgrade": func(name string) (func(), []string) {
			holder, fair := mustAcquire(t, store, inMode(exclusive, name)), wait(shared, name)
			return func() {
				if err := store.(driver.Downgrader).Downgrade(t.Context(), holder); err != nil {
					t.Error(err)
				}
			}, []string{everyone, fair}
		},
		"readers before a writer": func(name string) (func(), []string) {
			holder, one, two := acquireFair(name), wait(shared, name), wait(shared, name)
			wait(exclusive, name)
			return func() { mustRelease(t, store, holder) }, []string{one, two}
		},
		"a writer before a writer": func(name string) (func(), []string) {
			holder, one := acquireFair(name), wait(exclusive, name)
			wait(exclusive, name)
			return func() { mustRelease(t, store, holder) }, []string{one}
		},
		"as many waiters as permits": func(name string) (func(), []string) {
			first, second := mustAcquire(t, store, inMode(permits, name)), mustAcquire(t, store, inMode(permits, name))
			one, two := wait(permits, name), wait(permits, name)
			wait(permits, name)
			mustRelease(t, store, first)
			return func() { mustRelease(t, store, second) }, []string{one, two}
		},
		"more permits than waiters of the queue": func(name string) (func(), []string) {
			first, second := mustAcquire(t, store, inMode(permits, name)), mustAcquire(t, store, inMode(permits, name))
			fair := wait(permits, name)
			mustRelease(t, store, first)
			return func() { mustRelease(t, store, second) }, []string{everyone, fair}
		},
	} {
		call, want := test(name)
		slices.Sort(want)
		if got := published(t, raw, name, call); !slices.Equal(got, want) {
			t.Errorf("%s: notified are %q; want %q", name, got, want)
		}
	}
}
