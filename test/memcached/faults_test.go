package memcached

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/faults"
	"github.com/dlock-go/dlock/test/servers"
)

// faultTTL is long enough for a machine that is busy.
const faultTTL = 2 * time.Second

func rig(addr string) faults.Rig {
	return faults.Rig{
		TTL:     faultTTL,
		Open:    func(context.Context) (driver.Store, error) { return open(addr) },
		Command: again(addr),
		Addr:    addr,
		At:      rig,
		Delete: func(ctx context.Context, name string) error {
			_, err := converse(ctx, addr, "delete dlock:"+name+"\r\n", "")
			return err
		},
		Flush: func(ctx context.Context) error {
			_, err := converse(ctx, addr, "flush_all\r\n", "")
			return err
		},
		Fill: func(ctx context.Context) error { return fill(ctx, addr) },
		Drain: func(ctx context.Context) error {
			_, err := converse(ctx, addr, drain(), "HD")
			return err
		},
	}
}

// What fills a server: items of all sizes that a lock may have, more of each than
// the smallest server has room for.
const (
	fillers    = 12_000
	fillerStep = 48
	fillerMax  = 480
)

func fill(ctx context.Context, addr string) error {
	for size := fillerStep; size <= fillerMax; size += fillerStep {
		var b strings.Builder
		value := strings.Repeat("x", size)
		for i := range fillers {
			fmt.Fprintf(&b, "ms fill:%d:%d %d q\r\n%s\r\n", size, i, size, value)
		}
		b.WriteString("mn\r\n")
		if _, err := converse(ctx, addr, b.String(), "MN"); err != nil {
			return err
		}
	}
	return nil
}

func drain() string {
	var b strings.Builder
	for size := fillerStep; size <= fillerMax; size += fillerStep {
		for i := range fillers {
			fmt.Fprintf(&b, "md fill:%d:%d q\r\n", size, i)
		}
	}
	b.WriteString("ms drained 1\r\nx\r\n")
	return b.String()
}

func onServer(args ...string) func(testing.TB) faults.Rig {
	return func(t testing.TB) faults.Rig {
		t.Helper()
		return rig(servers.Run(t, servers.Memcached, args...).Addr())
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	faults.Run(t, onServer()(t), slices.Concat(faults.Leases, faults.Network))
}

func TestServerForgets(t *testing.T) {
	t.Parallel()
	faults.RunEach(t, onServer(), faults.Lost)
	faults.RunEach(t, onServer("-m", "1", "-M"), faults.Full)
	faults.RunEach(t, onServer("-m", "1"), faults.Evicted)
}

// TestRestart: a server that comes back knows nothing. It gives no lock before those who
// had one have stopped to believe in it, and the next token is larger.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	open := func() *dlock.Client {
		store, err := memcachelock.New(server.Addr(), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := dlock.New(store, nil)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	holder, other := open(), open()
	lease, err := holder.Lock(t.Context(), "a", dlock.WithTTL(faultTTL))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(t.Context(), "a", dlock.WithTTL(faultTTL)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock just after the restart: %v; want ErrHeld", err)
	}
	next, err := other.Lock(t.Context(), "a", dlock.WithTTL(faultTTL))
	if err != nil {
		t.Fatal(err)
	}
	if lease.Context().Err() == nil {
		t.Error("two believe in the lock")
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("unlock of what was lost: %v; want ErrNotHeld", err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNumbersBeginAgain: after a restart the lock of another owner may have the very
// number that the first one's had. A release of the first does not touch it.
func TestNumbersBeginAgain(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	store, err := open(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	acquire := func() driver.Grant {
		t.Helper()
		grant, err := store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return grant
	}
	before := acquire()
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	after := acquire() // the first number of all, as before
	if err := store.Release(t.Context(), before); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of a lock from before the restart: %v; want ErrNotHeld", err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{before}); errs == nil || !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("Renew of a lock from before the restart: %v; want ErrNotHeld", errs)
	}
	if err := store.Release(t.Context(), after); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}
