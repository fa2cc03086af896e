package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// requestIn is a request in a mode.
func requestIn(mode driver.Mode, name string) driver.Request {
	req := request(name)
	req.Mode = mode
	return req
}

var sharedMode = driver.Mode{Shared: true}

// TestKeyLayoutOfModes: the keys of shared holders and of permits are in the queue of the name. A
// downgraded lock keeps its key.
func TestKeyLayoutOfModes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	client := newClient(t, server.URL()+"/p", longTTL)
	for name, c := range map[string]struct {
		opts []dlock.Option
		mark string
	}{
		"catalogue": {[]dlock.Option{dlock.WithShared()}, "~shared-"},
		"gpu/0":     {[]dlock.Option{dlock.WithLimit(4)}, "~limit4-"},
		"config":    {nil, ""},
	} {
		lease, err := client.Lock(t.Context(), name, c.opts...)
		if err != nil {
			t.Fatal(err)
		}
		if c.opts == nil {
			if err := lease.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		queue := "p/" + strings.ReplaceAll(name, "/", "%2F") + "/"
		reply, err := raw.Get(t.Context(), queue, clientv3.WithPrefix())
		if err != nil || len(reply.Kvs) != 1 {
			t.Fatalf("keys of %q: %v, %v", name, reply, err)
		}
		kv := reply.Kvs[0]
		if got, want := string(kv.Key), queue+c.mark+hex(kv.Lease); got != want || kv.Lease == 0 {
			t.Errorf("the key of %q is %q; want %q", name, got, want)
		}
		if uint64(kv.CreateRevision) != tokenstep.Number(lease.Token()) {
			t.Errorf("token %d; want one of the revision %d that created the key", lease.Token(), kv.CreateRevision)
		}
		if value := string(kv.Value); !strings.Contains(value, `"pid"`) || strings.HasPrefix(value, `{"dlock":"shared",`) != (c.opts == nil) {
			t.Errorf("the holder of %q is written as %s", name, value)
		}
		unlock(t, lease)
	}
}

// holderEnv turns the test binary into a process that takes a lock and keeps it: its value is a name and
// a limit, zero for a shared lock.
const holderEnv = "DLOCK_TEST_ETCD_HOLDER"

// deadTTL is that of a process that dies.
const deadTTL = 2 * time.Second

// hold takes a lock and keeps it until its input ends.
func hold() int {
	name, number, _ := strings.Cut(os.Getenv(holderEnv), " ")
	mode := dlock.WithShared()
	if n, _ := strconv.Atoi(number); n > 0 {
		mode = dlock.WithLimit(n)
	}
	store, err := open(context.Background(), os.Getenv(urlEnv))
	if err == nil {
		_, err = dlock.New(store, &dlock.Options{TTL: deadTTL}).Lock(context.Background(), name, mode)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("main ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

// TestDeadHolderEndsAlone: the share of a process that was killed ends after its own TTL. The share of
// another process neither keeps it alive nor ends with it.
func TestDeadHolderEndsAlone(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	for name, c := range map[string]struct {
		mode    driver.Mode
		opt     dlock.Option
		waiter  []dlock.Option
		waitsOn int // holders that keep the waiter out
	}{
		"reader": {sharedMode, dlock.WithShared(), nil, 1},
		"permit": {driver.Mode{Limit: 2}, dlock.WithLimit(2), []dlock.Option{dlock.WithLimit(2)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			alive, waiter := newClient(t, server.URL(), longTTL), newClient(t, server.URL(), longTTL)
			lease, err := alive.Lock(ctx, name, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+server.URL(), fmt.Sprintf("%s=%s %d", holderEnv, name, c.mode.Limit))
			dead := child.Start(t, cmd)
			got := make(chan *dlock.Lease, 1)
			go func() {
				next, err := waiter.Lock(ctx, name, c.waiter...)
				if err != nil {
					t.Errorf("Lock: %v", err)
				}
				got <- next
			}()
			eventually(t, "a waiter has its place", func() bool { return waitersOf(alive, name) == 1 })
			holders := func() (tokens []uint64) {
				for info, err := range alive.Locks(ctx, name) {
					if err != nil || info.Mode != c.mode {
						t.Errorf("%+v, %v", info, err)
					}
					tokens = append(tokens, info.Token)
				}
				return tokens
			}
			if n := len(holders()); n != 2 {
				t.Fatalf("%d holders; want 2", n)
			}
			dead.Kill(t)
			if c.waitsOn == 1 {
				eventually(t, "the dead holder's share has ended", func() bool { return len(holders()) == 1 })
				select {
				case <-got:
					t.Fatal("the waiter was served beside the other holder")
				default:
				}
				if err := lease.Context().Err(); err != nil {
					t.Errorf("the share of the other process was lost: %v", err)
				}
				unlock(t, lease)
			}
			next := <-got
			if next == nil {
				t.FailNow()
			}
			if c.waitsOn == 2 {
				if !slices.Contains(holders(), lease.Token()) {
					t.Error("the share of the other process ended with that of the dead one")
				}
				unlock(t, lease)
			}
			unlock(t, next)
		})
	}
}

// TestReadersDoNotStarveAWriter: readers of three clients overlap all the time, and a writer gets the
// lock again and again.
func TestReadersDoNotStarveAWriter(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var readers sync.WaitGroup
	var inside sync.RWMutex // what the lock promises
	stop := make(chan struct{})
	for range 3 {
		client := newClient(t, server.URL(), longTTL)
		for range 2 {
			readers.Go(func() {
				for {
					lease, err := client.Lock(ctx, "busy", dlock.WithShared())
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					if !inside.TryRLock() {
						t.Error("a reader beside a writer")
						return
					}
					<-time.After(10 * time.Millisecond)
					inside.RUnlock()
					unlock(t, lease)
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
	}
	writer := newClient(t, server.URL(), longTTL)
	for range 10 {
		lease, err := writer.Lock(ctx, "busy")
		if err != nil {
			t.Errorf("Lock: %v", err)
			break
		}
		if !inside.TryLock() {
			t.Error("a writer beside a reader")
			break
		}
		inside.Unlock()
		unlock(t, lease)
	}
	close(stop)
	readers.Wait()
}

// TestPlaceOfAMismatchIsGivenUp: an exclusive waiter of a semaphore is refused for good, and leaves no
// place behind, although its first request took one.
func TestPlaceOfAMismatchIsGivenUp(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	a, b := newStore(t, server.URL()), newStore(t, server.URL())
	two := driver.Mode{Limit: 2}
	if _, err := a.Acquire(t.Context(), requestIn(two, "x")); err != nil {
		t.Fatal(err)
	}
	for mode, what := range map[driver.Mode]string{{}: "exclusive", sharedMode: "shared", {Limit: 3}: "limit 3"} {
		req := requestIn(mode, "x")
		req.Queue, req.Fair = true, true
		_, err := b.Acquire(t.Context(), req)
		mismatch, ok := errors.AsType[*driver.ModeError](err)
		if !ok || mismatch.Mode != two {
			t.Errorf("%s request of a semaphore: %v; want a ModeError with limit 2", what, err)
		}
	}
	if keys, err := raw.Get(t.Context(), "x/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || keys.Count != 1 {
		t.Errorf("%v keys, %v; want that of the holder", keys, err)
	}
}
