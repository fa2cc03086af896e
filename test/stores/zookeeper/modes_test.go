package zookeeper

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/go-zookeeper/zk"
)

var (
	shared    = driver.Mode{Shared: true}
	exclusive = driver.Mode{}
	limitOne  = driver.Mode{Limit: 1}
	two       = driver.Mode{Limit: 2}
)

func requestIn(mode driver.Mode, name string) driver.Request {
	req := request(name)
	req.Mode = mode
	return req
}

// createSequential creates a node as another program does.
func createSequential(t testing.TB, conn *zk.Conn, prefix string) (path string) {
	t.Helper()
	return want.Value(conn.Create(prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)))(t)
}

func createContainers(t testing.TB, conn *zk.Conn, paths ...string) {
	t.Helper()
	for _, path := range paths {
		want.OK(t, want.Err(conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))))
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

// TestDowngradeKeepsNode: a downgrade replaces the writer's node by a reader's with the same
// number, also if the answer is lost, and a release leaves nothing.
func TestDowngradeKeepsNode(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	for _, lose := range []bool{false, true} {
		name := map[bool]string{false: "answered", true: "unanswered"}[lose]
		grant := want.Acquire(t, store, request(name))
		node := contenders(t, conn, name)[0]
		var lost <-chan struct{}
		if lose {
			lost = p.LoseReply(sends(opMulti, name), true)
		}
		want.OK(t, store.Downgrade(t.Context(), grant))
		if lose {
			await.Event(t, lost, "the lost answer")
		}
		children := childrenOf(t, conn, name)
		slices.Sort(children)
		if len(children) != 2 || children[1] != node || !strings.HasSuffix(children[0], "__READ__0000000001") {
			t.Errorf("%s: the nodes are %q; want %s and a reader with the number of the writer", name, children, node)
		}
		want.Release(t, other, want.Acquire(t, other, requestIn(shared, name)))
		want.Held(t, other, request(name), "it is shared")
		want.Release(t, store, grant)
		if children := childrenOf(t, conn, name); len(children) > 0 {
			t.Errorf("%s: after Release the nodes are %q", name, children)
		}
	}
	// The answer is lost and the caller leaves: Release removes whichever node there is.
	grant := want.Acquire(t, store, request("left"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(sends(opMulti, "left"), func(*proxy.Conn) { p.Hold(proxy.Replies); cancel() })
	want.Unknown(t, "Downgrade without an answer", store.Downgrade(ctx, grant))
	await.Until(t, "the reader's node exists", func() bool {
		return slices.ContainsFunc(childrenOf(t, conn, "left"), func(node string) bool { return strings.Contains(node, "__READ__") })
	})
	p.Reset() // the answer never arrives
	p.Deliver()
	want.Release(t, store, grant)
	if children := childrenOf(t, conn, "left"); len(children) > 0 {
		t.Errorf("after Release the nodes are %q", children)
	}
}

// TestWriterThatBecomesReaderIsWaitedFor: a writer of Curator downgrades while an exclusive waiter
// watches its node. The reader's node, which is new, has a lower number than the waiter's.
func TestWriterThatBecomesReaderIsWaitedFor(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	createContainers(t, conn, "/n")
	writer := createSequential(t, conn, "/n/_c_11111111-2222-3333-4444-555555555555-__WRIT__")
	exclusive := want.Locked(t, client(t, open(t, server.URL()), nil), "n")
	await.Until(t, "the waiter watches", func() bool { return watchCount(t, server) == 1 })
	reader := "/n/_c_11111111-2222-3333-4444-666666666666-__READ__" + writer[len(writer)-10:]
	want.OK(t, want.Err(conn.Create(reader, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	want.OK(t, conn.Delete(writer, -1))
	select {
	case got := <-exclusive:
		t.Fatalf("the exclusive waiter got the lock beside a reader: %+v", got)
	case <-time.After(300 * time.Millisecond):
	}
	want.OK(t, conn.Delete(reader, -1))
	want.Unlock(t, want.Served(t, exclusive, 0))
}

// TestSessionEndEndsItsSharesOnly: the session of one of two readers ends, and of one of two permit
// holders. The others keep theirs.
func TestSessionEndEndsItsSharesOnly(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "?timeout=4s")
	other := open(t, server.URL())
	lost := make(chan struct{}, 2)
	var kept []driver.Grant
	for name, mode := range map[string]driver.Mode{"read": shared, "permit": two} {
		req := requestIn(mode, name)
		req.Lost = func() { lost <- struct{}{} }
		want.Acquire(t, store, req)
		kept = append(kept, want.Acquire(t, other, requestIn(mode, name)))
	}
	writer := want.Locked(t, client(t, open(t, server.URL()), nil), "read")
	await.Until(t, "the writer waits", func() bool { return len(contenders(t, conn, "read")) == 3 })
	p.Hang(true)
	p.Reset()
	await.Until(t, "the shares of the session end", func() bool {
		return len(contenders(t, conn, "read")) == 2 && len(contenders(t, conn, "permit")) == 1
	})
	want.Release(t, other, want.Acquire(t, other, requestIn(two, "permit")))
	want.Renew(t, other, "of the other shares", kept...)
	select {
	case got := <-writer:
		t.Fatalf("the writer got the lock beside a reader: %+v", got)
	default:
	}
	want.Release(t, other, kept...)
	want.Unlock(t, want.Served(t, writer, 0))
	p.Hang(false)
	p.Reset()
	await.Event(t, lost, "Lost")
	await.Event(t, lost, "Lost")
}

// TestUnfairRefusesModes: the order Unfair offers no modes, and gives way to their holders.
func TestUnfairRefusesModes(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	fair, unfair := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
	for _, mode := range []driver.Mode{shared, two} {
		_, err := unfair.Acquire(t.Context(), requestIn(mode, "n"))
		want.Error(t, "another mode with the order Unfair", err, driver.ErrUnsupported)
	}
	reader, permit := want.Acquire(t, fair, requestIn(shared, "n")), want.Acquire(t, fair, requestIn(two, "p"))
	want.Held(t, unfair, request("n"), "it is shared")
	want.Error(t, "a lock beside a permit", want.Err(unfair.Acquire(t.Context(), request("p"))), driver.ErrMode)
	want.Release(t, fair, reader, permit)
	want.Release(t, unfair, want.Acquire(t, unfair, request("n")))
	want.Release(t, unfair, want.Acquire(t, unfair, request("p")))
}

// TestExclusiveOnly: a store with ExclusiveOnly has one node for a lock and offers no modes. Its
// locks and those of a store with modes exclude and wake each other.
func TestExclusiveOnly(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	plain, only := open(t, server.URL()), open(t, server.URL()+"?modes=exclusive")
	if traits := only.Traits(); traits.Shared || traits.Limits || !traits.Fair {
		t.Errorf("traits: %+v; want Fair without Shared and Limits", traits)
	}
	for _, mode := range []driver.Mode{shared, two} {
		_, err := only.Acquire(t.Context(), requestIn(mode, "n"))
		want.Error(t, "another mode with ExclusiveOnly", err, driver.ErrUnsupported)
	}
	for _, mode := range []driver.Mode{exclusive, shared} {
		holder := want.Acquire(t, only, request("n"))
		if got := nodeKinds(t, conn, "n"); !slices.Equal(got, []string{"lock-"}) {
			t.Errorf("nodes of the lock: %q; want one", got)
		}
		want.Error(t, "Downgrade", only.Downgrade(t.Context(), holder), driver.ErrUnsupported)
		waiter := queuedRequest(mode, "n")
		woken := want.Watch(t, plain, waiter)
		mustWait(t, plain, waiter)
		want.Release(t, only, holder)
		await.Event(t, woken, "the wake-up of a waiter behind it")
		grant := want.Acquire(t, plain, waiter)
		want.Held(t, only, request("n"), "another store has it")
		want.Release(t, plain, grant)
	}
}
