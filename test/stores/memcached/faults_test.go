package memcached

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// faultTTL is so long that a lock that was renewed by mistake is noticed although the server ends locks
// late.
const faultTTL = 7 * time.Second

func rig(addr string) faults.Rig {
	return faults.Rig{
		TTL:     faultTTL,
		Open:    func(context.Context) (driver.Store, error) { return open(addr) },
		Command: again(addr),
		Addr:    addr,
		At:      rig,
		// Over a new connection, when one that worked before is silent.
		RepeatsCalls: true,
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

// A server is filled with items of all sizes that a lock may have, more of each than the smallest
// server has memory for.
const (
	fillers    = 12_000
	fillerStep = 24
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
	faults.RunEach(t, onServer("-m", "2"), faults.Evicted)
}

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
	store := openNow(t, r.Addr)
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
	other := openNow(t, r.Addr)
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

// TestRestartedServerWaitsForOldHolders: a restarted server has forgotten all locks. It grants none
// before the leases from before the restart have ended, and the next token is larger.
func TestRestartedServerWaitsForOldHolders(t *testing.T) {
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
	const ttl = 2 * time.Second
	ctx := bounded(t)
	lease, err := holder.Lock(ctx, "a", dlock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryLock(ctx, "a", dlock.WithTTL(ttl)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock just after the restart: %v; want ErrHeld", err)
	}
	next, err := other.Lock(ctx, "a", dlock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	if lease.Context().Err() == nil {
		t.Error("the lock has two holders")
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := lease.Unlock(ctx); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock of a lost lock: %v; want ErrNotHeld", err)
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestFastRestartGrantsNothingEarly: however soon the server is back, it grants no lock before the
// lease from before the restart has ended, and tokens rise also with the shortest TTL.
func TestFastRestartGrantsNothingEarly(t *testing.T) {
	t.Parallel()
	restarted := func(t *testing.T, ttl time.Duration, times int) {
		t.Helper()
		server := servers.Run(t, servers.Memcached)
		lock := func(opts *memcachelock.Options) *dlock.Lease {
			t.Helper()
			store, err := memcachelock.New(server.Addr(), opts)
			if err != nil {
				t.Fatal(err)
			}
			client := dlock.New(store, nil)
			t.Cleanup(func() { _ = errors.Join(client.Close(), store.Close()) })
			lease, err := client.Lock(bounded(t), "a", dlock.WithFixedTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		for before := lock(&memcachelock.Options{RestartDelay: time.Second}); times > 0; times-- {
			if err := errors.Join(server.Kill(), server.Restart()); err != nil {
				t.Fatal(err)
			}
			after := lock(nil)
			if before.Context().Err() == nil {
				t.Error("the lock has two holders")
			}
			if after.Token() <= before.Token() {
				t.Errorf("token %d after %d", after.Token(), before.Token())
			}
			before = after
		}
	}
	t.Run("one holder", func(t *testing.T) {
		t.Parallel()
		restarted(t, 3*time.Second, 1)
	})
	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		restarted(t, time.Second, 2)
	})
}

// TestReusedNumberTouchesNoOtherLock: after a restart the lock of another owner may have the number
// that the lock of the first owner had. A release by the first owner does not touch it.
func TestReusedNumberTouchesNoOtherLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	store, err := open(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	acquire := func() driver.Grant {
		t.Helper()
		for range 100 { // the first call notices that the connection is gone
			grant, err := store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
			if err == nil {
				return grant
			}
			if !errors.Is(err, driver.ErrUnreachable) {
				t.Fatal(err)
			}
		}
		t.Fatal("the server does not come back")
		return driver.Grant{}
	}
	before := acquire()
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	after := acquire() // the first number, as before
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

// TestIdleConnectionIsReused: a connection that was idle for a while is used again.
func TestIdleConnectionIsReused(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store := openNow(t, addr)
	find := func() {
		t.Helper()
		if _, _, err := store.(driver.Finder).Find(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	find()
	before := stat(t, addr, "total_connections")
	for range 3 {
		<-time.After(200 * time.Millisecond)
		find()
	}
	if n := stat(t, addr, "total_connections") - before; n != 1 { // by stat
		t.Errorf("%d connections were opened; want none", n-1)
	}
}

// openNow opens a store until the end of the test.
func openNow(t *testing.T, addr string) driver.Store {
	t.Helper()
	store, err := open(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// take acquires a lock that is free.
func take(t *testing.T, store driver.Store, name string) driver.Grant {
	t.Helper()
	grant, err := store.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

// relay starts a proxy that passes each line of an answer on by calling pass, and returns its address.
func relay(t *testing.T, server string, pass func(client io.Writer, line string)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(client net.Conn) {
		defer client.Close()
		conn, err := net.Dial("tcp", server)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(conn, client) }() // until one of them closes
		for in := bufio.NewReader(conn); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			pass(client, line)
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(client)
		}
	}()
	return listener.Addr().String()
}

// TestAnswerMayArriveInPieces: the value of an item may arrive later than the line before it.
func TestAnswerMayArriveInPieces(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	grant := take(t, openNow(t, addr), "a")
	slow := openNow(t, relay(t, addr, func(client io.Writer, line string) {
		_, _ = io.WriteString(client, line)
		if strings.HasPrefix(line, "VA ") {
			<-time.After(50 * time.Millisecond)
		}
	}))
	info, held, err := slow.(driver.Finder).Find(t.Context(), "a")
	if err != nil || !held || info.Token != grant.Token {
		t.Errorf("Find: %+v, held %v, %v; want token %d", info, held, err, grant.Token)
	}
}

// TestHalfAnAnswerEndsWithTheContext: a call whose answer is incomplete ends with its context, and does
// not keep Close from returning.
func TestHalfAnAnswerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	take(t, openNow(t, addr), "a")
	stats := func(line string) bool { return strings.HasPrefix(line, "STAT") || strings.HasPrefix(line, "END") }
	for name, pass := range map[string]func(client io.Writer, line string){
		"half a line": func(client io.Writer, line string) {
			if !stats(line) {
				line = line[:len(line)/2]
			}
			_, _ = io.WriteString(client, line)
		},
		"half a value": func(client io.Writer, line string) {
			if !stats(line) && !strings.HasPrefix(line, "VA ") {
				line = line[:len(line)/2]
			}
			_, _ = io.WriteString(client, line)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = time.Minute
			store, err := memcachelock.New(relay(t, addr, pass), &memcachelock.Options{RestartDelay: -1, Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			if _, _, err := store.Find(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("Find: %v; want context.Canceled", err)
			}
			if took := time.Since(begin); took > timeout/2 {
				t.Errorf("Find returned after %v; want soon after 100 ms", took)
			}
			begin = time.Now()
			if _, err := store.Watch(t.Context(), driver.Request{Name: "a"}, func() {}); err != nil {
				t.Fatal(err)
			}
			<-time.After(200 * time.Millisecond) // so that the poller has asked
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > timeout/2 {
				t.Errorf("Close took %v", took)
			}
		})
	}
}

// TestFirstPairIsTwoRoundTrips: a pair over a new connection is two round trips, as over others: the
// item is read when it is stored, and not again before it is deleted.
func TestFirstPairIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	addr := servers.Run(t, servers.Memcached).Addr()
	store := openNow(t, addr)
	if err := store.Release(t.Context(), take(t, store, "a")); err != nil {
		t.Fatal(err)
	}
	if n := stat(t, addr, "cmd_get"); n != 1 {
		t.Errorf("the item was read %d times; want once", n)
	}
}
