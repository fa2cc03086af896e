package zookeeper

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

var (
	shared    = driver.Mode{Shared: true}
	exclusive = driver.Mode{}
)

func requestIn(mode driver.Mode, name string) driver.Request {
	req := request(name)
	req.Mode = mode
	return req
}

// createSequential creates a node as another program does.
func createSequential(t testing.TB, conn *zk.Conn, prefix string) (path string) {
	t.Helper()
	path, err := conn.Create(prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func createContainers(t testing.TB, conn *zk.Conn, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
}

// nodeKinds returns the nodes of a path without IDs and numbers, in order.
func nodeKinds(t testing.TB, conn *zk.Conn, path string) []string {
	t.Helper()
	id := regexp.MustCompile(`^_c_[0-9a-f-]{36}-(.*?)[0-9]{10}$`)
	var kinds []string
	for _, child := range childrenOf(t, conn, path) {
		kinds = append(kinds, id.ReplaceAllString(child, "$1"))
	}
	slices.Sort(kinds)
	return kinds
}

// TestModesLookLikeCurators: holders have the nodes that Curator's recipes see.
func TestModesLookLikeCurators(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	store := open(t, server.URL())
	for _, test := range []struct {
		mode     driver.Mode
		children []string
	}{
		{exclusive, []string{"__WRIT__", "lock-"}},
		{shared, []string{"__READ__", "lock-"}},
		{driver.Mode{Limit: 3}, []string{"3-lock-", "leases"}},
	} {
		name := strings.ReplaceAll(test.mode.String(), " ", "-")
		grant := acquire(t, store, requestIn(test.mode, name))
		if got := nodeKinds(t, conn, name); !slices.Equal(got, test.children) {
			t.Errorf("%v: the nodes are %q; want %q", test.mode, got, test.children)
		}
		if test.mode.Limit > 0 {
			if got := nodeKinds(t, conn, name+"/leases"); !slices.Equal(got, []string{"lease-"}) {
				t.Errorf("the leases are %q; want one", got)
			}
		}
		release(t, store, grant)
		if got := slices.Concat(contenders(t, conn, name), nodeKinds(t, conn, name+"/leases")); len(got) > 0 {
			t.Errorf("%v: after Release the nodes are %q", test.mode, got)
		}
		reaped(t, conn, name)
	}
}

// TestDowngradeKeepsNode: a downgrade replaces the writer's node by a reader's with the same
// number, also if the answer is lost, and a release leaves nothing.
func TestDowngradeKeepsNode(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	for _, lose := range []bool{false, true} {
		name := map[bool]string{false: "answered", true: "unanswered"}[lose]
		grant := acquire(t, store, request(name))
		node := contenders(t, conn, name)[0]
		var lost <-chan struct{}
		if lose {
			lost = p.LoseReply(sends(opMulti, name), true)
		}
		if err := store.Downgrade(t.Context(), grant); err != nil {
			t.Fatalf("%s: Downgrade: %v", name, err)
		}
		if lose {
			happens(t, lost, "the lost answer")
		}
		children := childrenOf(t, conn, name)
		slices.Sort(children)
		if len(children) != 2 || children[1] != node || !strings.HasSuffix(children[0], "__READ__0000000001") {
			t.Errorf("%s: the nodes are %q; want %s and a reader with the number of the writer", name, children, node)
		}
		release(t, other, acquire(t, other, requestIn(shared, name)))
		wantHeld(t, other, name, "it is shared")
		release(t, store, grant)
		if children := childrenOf(t, conn, name); len(children) > 0 {
			t.Errorf("%s: after Release the nodes are %q", name, children)
		}
	}
	// The answer is lost and the caller leaves: Release removes whichever node there is.
	grant := acquire(t, store, request("left"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(sends(opMulti, "left"), func(*proxy.Conn) { p.Hold(proxy.Replies); cancel() })
	if err := store.Downgrade(ctx, grant); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("Downgrade without an answer: %v", err)
	}
	await.Until(t, "the reader's node exists", func() bool {
		return slices.ContainsFunc(childrenOf(t, conn, "left"), func(node string) bool { return strings.Contains(node, "__READ__") })
	})
	p.Reset() // the answer never arrives
	p.Deliver()
	release(t, store, grant)
	if children := childrenOf(t, conn, "left"); len(children) > 0 {
		t.Errorf("after Release the nodes are %q", children)
	}
}

// TestWriterThatBecomesReaderIsWaitedFor: a writer of Curator downgrades while an exclusive waiter
// watches its node. The reader's node, which is new, has a lower number than the waiter's.
func TestWriterThatBecomesReaderIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	createContainers(t, conn, "/n")
	writer := createSequential(t, conn, "/n/_c_11111111-2222-3333-4444-555555555555-__WRIT__")
	exclusive := lockLater(t, client(t, open(t, server.URL()), nil), "n")
	eventually(t, "the waiter watches", func() bool { return watchCount(t, server) == 1 })
	reader := "/n/_c_11111111-2222-3333-4444-666666666666-__READ__" + writer[len(writer)-10:]
	if _, err := conn.Create(reader, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Delete(writer, -1); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-exclusive:
		t.Fatalf("the exclusive waiter got the lock beside a reader: %+v", got)
	case <-time.After(300 * time.Millisecond):
	}
	if err := conn.Delete(reader, -1); err != nil {
		t.Fatal(err)
	}
	got := happens(t, exclusive, "the waiter's turn")
	if got.err != nil {
		t.Fatal(got.err)
	}
	if err := got.lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOlderVersionsExcludeModes: a node as older versions of dlock write it, alone, excludes shared
// locks and permits. Every holder has such a node, which older versions wait for.
func TestOlderVersionsExcludeModes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store := open(t, server.URL())
	createContainers(t, conn, "/n")
	older := createSequential(t, conn, "/n/_c_11111111-2222-3333-4444-555555555555-lock-")
	for _, mode := range []driver.Mode{exclusive, shared} {
		if _, err := store.Acquire(t.Context(), requestIn(mode, "n")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v beside an older version: %v; want ErrHeld", mode, err)
		}
	}
	if _, err := store.Acquire(t.Context(), requestIn(driver.Mode{Limit: 2}, "n")); !errors.Is(err, driver.ErrMode) {
		t.Errorf("a permit beside an older version: %v; want ErrMode", err)
	}
	if err := conn.Delete(older, -1); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []driver.Mode{exclusive, shared, {Limit: 2}} {
		grant := acquire(t, store, requestIn(mode, "n"))
		if n := len(contenders(t, conn, "n")); n != 1 {
			t.Errorf("%v: %d nodes that older versions wait for; want one", mode, n)
		}
		release(t, store, grant)
	}
}

// TestSessionEndEndsItsSharesOnly: the session of one of two readers ends, and of one of two permit
// holders. The others keep theirs.
func TestSessionEndEndsItsSharesOnly(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "?timeout=4s")
	other := open(t, server.URL())
	two := driver.Mode{Limit: 2}
	lost := make(chan struct{}, 2)
	var kept []driver.Grant
	for name, mode := range map[string]driver.Mode{"read": shared, "permit": two} {
		req := requestIn(mode, name)
		req.Lost = func() { lost <- struct{}{} }
		acquire(t, store, req)
		kept = append(kept, acquire(t, other, requestIn(mode, name)))
	}
	writer := lockLater(t, client(t, open(t, server.URL()), nil), "read")
	eventually(t, "the writer waits", func() bool { return len(contenders(t, conn, "read")) == 3 })
	p.Hang(true)
	p.Reset()
	eventually(t, "the shares of the session end", func() bool {
		return len(contenders(t, conn, "read")) == 2 && len(contenders(t, conn, "permit")) == 1
	})
	release(t, other, acquire(t, other, requestIn(two, "permit")))
	if errs := other.Renew(t.Context(), kept); errs != nil {
		t.Errorf("Renew of the other shares: %v", errs)
	}
	select {
	case got := <-writer:
		t.Fatalf("the writer got the lock beside a reader: %+v", got)
	default:
	}
	for _, grant := range kept {
		release(t, other, grant)
	}
	if got := happens(t, writer, "the writer's turn"); got.err != nil {
		t.Error(got.err)
	}
	p.Hang(false)
	p.Reset()
	happens(t, lost, "the call of Lost")
	happens(t, lost, "the call of Lost")
}

// TestWriterPassesReadersOfManyProcesses: readers of several sessions that come again and again do
// not starve a writer.
func TestWriterPassesReadersOfManyProcesses(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	ctx, cancel := context.WithCancel(t.Context())
	reading := make(chan error)
	const readers = 3
	begun := make(chan struct{}, readers)
	for range readers {
		locks := client(t, open(t, server.URL()), nil)
		go func() {
			for first := true; ; first = false {
				lease, err := locks.Lock(ctx, "n", dlock.WithShared())
				if err != nil {
					reading <- err
					return
				}
				if first {
					begun <- struct{}{}
				}
				select { // the readers overlap
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
				if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range readers {
		happens(t, begun, "a reader")
	}
	locks := client(t, open(t, server.URL()), nil)
	for range 10 {
		got := happens(t, lockLater(t, locks, "n"), "the writer's turn")
		if got.err != nil {
			t.Fatal(got.err)
		}
		if err := got.lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	cancel()
	for range readers {
		if err := happens(t, reading, "the end of a reader"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestUnfairRefusesModes: the order Unfair offers no modes, and gives way to their holders.
func TestUnfairRefusesModes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	fair, unfair := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
	for _, mode := range []driver.Mode{shared, {Limit: 2}} {
		if _, err := unfair.Acquire(t.Context(), requestIn(mode, "n")); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%v with the order Unfair: %v; want ErrUnsupported", mode, err)
		}
	}
	reader, permit := acquire(t, fair, requestIn(shared, "n")), acquire(t, fair, requestIn(driver.Mode{Limit: 2}, "p"))
	wantHeld(t, unfair, "n", "it is shared")
	if _, err := unfair.Acquire(t.Context(), request("p")); !errors.Is(err, driver.ErrMode) {
		t.Errorf("a lock beside a permit: %v; want ErrMode", err)
	}
	release(t, fair, reader)
	release(t, fair, permit)
	release(t, unfair, acquire(t, unfair, request("n")))
	release(t, unfair, acquire(t, unfair, request("p")))
}

// TestExclusiveOnly: a store with ExclusiveOnly has one node for a lock and offers no modes. Its
// locks and those of a store with modes exclude and wake each other.
func TestExclusiveOnly(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	plain, only := open(t, server.URL()), open(t, server.URL()+"?modes=exclusive")
	if traits := only.Traits(); traits.Shared || traits.Limits || !traits.Fair {
		t.Errorf("traits: %+v; want Fair without Shared and Limits", traits)
	}
	for _, mode := range []driver.Mode{shared, {Limit: 2}} {
		if _, err := only.Acquire(t.Context(), requestIn(mode, "n")); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%v with ExclusiveOnly: %v; want ErrUnsupported", mode, err)
		}
	}
	for _, mode := range []driver.Mode{exclusive, shared} {
		holder := acquire(t, only, request("n"))
		if got := nodeKinds(t, conn, "n"); !slices.Equal(got, []string{"lock-"}) {
			t.Errorf("nodes of the lock: %q; want one", got)
		}
		if err := only.Downgrade(t.Context(), holder); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("Downgrade: %v; want ErrUnsupported", err)
		}
		waiter := queuedRequest(mode, "n")
		woken := startWatch(t, plain, waiter)
		mustWait(t, plain, waiter)
		release(t, only, holder)
		happens(t, woken, "the wake-up of a waiter behind it")
		grant := acquire(t, plain, waiter)
		wantHeld(t, only, "n", "another store has it")
		release(t, plain, grant)
	}
}
