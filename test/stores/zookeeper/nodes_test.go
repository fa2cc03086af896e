package zookeeper

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/go-zookeeper/zk"
)

var curatorNode = regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-(lock-|__WRIT__)[0-9]{10}$`)

// TestNodesLookLikeCurators: nodes have the names and places of Curator's, do not contain the
// secret owner, and leave nothing behind.
func TestNodesLookLikeCurators(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	store := open(t, server.URL()+"/locks")
	req := request("orders/42")
	grant := want.Acquire(t, store, req)
	waiting := queuedRequest(exclusive, "orders/42")
	mustWait(t, store, waiting)
	children, _, err := conn.Children("/locks/orders%2F42")
	if err != nil || len(children) != 4 {
		t.Fatalf("the nodes are %q, %v; want two of each", children, err)
	}
	for _, child := range children {
		data, stat, err := conn.Get("/locks/orders%2F42/" + child)
		if err != nil {
			t.Fatal(err)
		}
		if !curatorNode.MatchString(child) {
			t.Errorf("the node %q is not named as Curator's", child)
		}
		for _, owner := range []driver.Owner{req.Owner, waiting.Owner} {
			if hex := owner.Hex(); bytes.Contains(data, []byte(hex)) || strings.Contains(strings.ReplaceAll(child, "-", ""), hex) {
				t.Errorf("the owner can be read in the node %s: %s", child, data)
			}
		}
		if (strings.HasSuffix(child, "0") || strings.HasSuffix(child, "1")) && uint64(stat.Czxid) != tokenstep.Number(grant.Token) {
			t.Errorf("the token is %d; want the czxid %d", grant.Token, stat.Czxid)
		}
	}
	want.Release(t, store, grant)
	want.Release(t, store, want.Acquire(t, store, waiting))
	reaped(t, conn, "locks/orders%2F42")
	want.Release(t, store, want.Acquire(t, store, request("orders/42"))) // creates the container again

	for name, test := range map[string]struct {
		mode     driver.Mode
		children []string
	}{
		"exclusive": {exclusive, []string{"__WRIT__", "lock-"}},
		"shared":    {shared, []string{"__READ__", "lock-"}},
		"permit":    {two, []string{"2-lock-", "leases"}},
	} {
		grant := want.Acquire(t, store, requestIn(test.mode, name))
		if got := nodeKinds(t, conn, "locks/"+name); !slices.Equal(got, test.children) {
			t.Errorf("%s: the nodes are %q; want %q", name, got, test.children)
		}
		if got := nodeKinds(t, conn, "locks/"+name+"/leases"); test.mode == two && !slices.Equal(got, []string{"lease-"}) {
			t.Errorf("the leases are %q; want one", got)
		}
		want.Release(t, store, grant)
		nothingLeft(t, conn, "locks/"+name)
	}
}

// TestContainerDataIsKept: locking a path keeps the data that another program stored there.
func TestContainerDataIsKept(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	want.OK(t, want.Err(conn.Create("/entity", []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))))
	for _, order := range []string{"fair", "unfair"} {
		store := open(t, server.URL()+"?order="+order)
		for range 3 {
			grant := want.Acquire(t, store, request("entity"))
			want.Held(t, store, request("entity"), "it was just granted")
			want.Release(t, store, grant)
		}
	}
	if data, _, err := conn.Get("/entity"); err != nil || string(data) != "precious" {
		t.Errorf("the data are %q, %v", data, err)
	}
}

// TestOtherChildrenAreIgnored: nodes that are not contenders' do not affect the lock.
func TestOtherChildrenAreIgnored(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	for _, node := range []string{"/n", "/n/!config", "/n/zz", "/n/block-1", "/n/deadlock-info"} {
		want.OK(t, want.Err(conn.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))))
	}
	for _, order := range []string{"fair", "unfair"} {
		store := open(t, server.URL()+"?order="+order)
		grant := want.Acquire(t, store, request("n"))
		want.Held(t, store, request("n"), "it was just granted")
		want.Release(t, store, grant)
		if info, held, err := store.Find(t.Context(), "n"); err != nil || held {
			t.Errorf("%s: Find returns %+v, %v, %v; want no holder", order, info, held, err)
		}
	}
}

// TestDiagnoseSurvivesReaping: ZooKeeper removes the empty container that Diagnose has created
// before Diagnose does.
func TestDiagnoseSurvivesReaping(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeperReaping)
	store, p := throughProxy(t, server, "/doctor")
	removal := matches(opDelete, func(request []byte) bool {
		return bytes.Contains(request, []byte("dlock-doctor-")) && !bytes.Contains(request, []byte("-lock-"))
	})
	removed := p.OnRequest(removal, func(*proxy.Conn) {
		children, _, err := conn.Children("/doctor")
		i := slices.IndexFunc(children, func(child string) bool { return strings.HasPrefix(child, "dlock-doctor-") })
		if err != nil || i < 0 {
			t.Errorf("the nodes are %q, %v; want the container of the diagnosis", children, err)
			return
		}
		if err := conn.Delete("/doctor/"+children[i], -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Error(err)
		}
	})
	findings, err := store.Diagnose(t.Context())
	if err != nil || len(findings) == 0 || findings[0].Level != driver.LevelOK {
		t.Errorf("the diagnosis is %v, %v; want that the rights suffice", findings, err)
	}
	await.Event(t, removed, "the removal of the container")
}

// TestOrdersExcludeEachOther: the two orders exclude and wake each other.
func TestOrdersExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	fair, unfair := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
	for _, pair := range [][2]driver.Store{{fair, unfair}, {unfair, fair}} {
		grant := want.Acquire(t, pair[0], request("n"))
		want.Held(t, pair[1], request("n"), "the other order has it")
		next := want.Locked(t, client(t, pair[1], nil), "n")
		await.Until(t, "the other contender waits", func() bool { return watchCount(t, server) == 1 })
		want.Release(t, pair[0], grant)
		want.Unlock(t, want.Served(t, next, grant.Token))
	}
	// lock-0 does not pass a queue.
	grant := want.Acquire(t, fair, request("q"))
	queued := queuedRequest(exclusive, "q")
	mustWait(t, fair, queued)
	want.Release(t, fair, grant)
	want.Held(t, unfair, request("q"), "a waiter queues")
	want.Release(t, fair, want.Acquire(t, fair, queued))
	want.Release(t, unfair, want.Acquire(t, unfair, request("q")))

	// Waiters of both orders get the lock, one after another.
	grant = want.Acquire(t, fair, request("mixed"))
	got := make(chan *dlock.Lease)
	const each = 4
	for range each {
		for _, query := range []string{"", "?order=unfair"} {
			waiter := want.Locked(t, client(t, open(t, server.URL()+query), nil), "mixed")
			go func() { got <- <-waiter }()
		}
	}
	await.Until(t, "the waiters watch", func() bool { return watchCount(t, server) >= 3 })
	want.Release(t, fair, grant)
	want.ServedAll(t, got, 2*each)
}

// TestGoZooKeeperLock: the Lock of the client library and dlock exclude and wake each other.
func TestGoZooKeeperLock(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			store := open(t, server.URL()+"/shared?order="+order)
			locks := client(t, store, nil)
			theirs := zk.NewLock(conn, "/shared/n", zk.WorldACL(zk.PermAll))
			want.OK(t, theirs.Lock())
			want.Error(t, "TryLock", want.Err(locks.TryLock(t.Context(), "n")), dlock.ErrHeld)
			next, woken := want.Locked(t, locks, "n"), make(chan error, 1)
			await.Until(t, "dlock waits", func() bool { return watchCount(t, server) == 1 })
			want.OK(t, theirs.Unlock())
			lease := want.Served(t, next, 0)
			go func() { woken <- theirs.Lock() }()
			await.Until(t, "the other contender waits", func() bool { return len(contenders(t, conn, "shared/n")) == 2 })
			select {
			case err := <-woken:
				t.Fatalf("the other Lock got the lock that dlock holds: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			want.Unlock(t, lease)
			want.OK(t, await.Event(t, woken, "the turn of the other Lock"))
			if err := theirs.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBreakReportsLoss: after its first renewal a holder learns at once that its lock was broken.
func TestBreakReportsLoss(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		holder, other := open(t, server.URL()+"?order="+order), open(t, server.URL())
		lost := make(chan struct{})
		req := request(order)
		req.Lost = func() { close(lost) }
		grant := want.Acquire(t, holder, req)
		want.Renew(t, holder, "of what is held", grant)
		want.Break(t, other, grant)
		await.Event(t, lost, "Lost")
		want.Error(t, "Release", holder.Release(t.Context(), grant), driver.ErrNotHeld)
	}
}

// TestWaiterOfRemovedNodeIsNotGranted: the nodes of a waiter are removed while it waits. The
// removal of the nodes ahead does not give it the lock.
func TestWaiterOfRemovedNodeIsNotGranted(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	const timeout = 4 * time.Second
	store, other := open(t, server.URL()+"?timeout="+timeout.String()), open(t, server.URL())
	before := want.Acquire(t, other, request("x"))
	req := request("x")
	req.Queue = true
	woken := want.Watch(t, store, req)
	start := time.Now()
	want.Held(t, store, req, "another has it")
	nodes := childrenOf(t, conn, "x")
	if len(nodes) != 4 {
		t.Fatalf("the nodes are %q; want two of each", nodes)
	}
	for _, node := range nodes {
		_, stat, err := conn.Exists("/x/" + node)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(stat.Czxid) != tokenstep.Number(before.Token) {
			want.OK(t, conn.Delete("/x/"+node, -1))
		}
	}
	await.Until(t, "its node was last seen too long ago", func() bool { return time.Since(start) > timeout/16 })
	want.Release(t, store, want.Acquire(t, store, request("y"))) // the leader confirms the session
	want.Release(t, other, before)
	second := want.Acquire(t, other, request("x"))
	await.Event(t, woken, "the wake-up")
	grant, err := store.Acquire(t.Context(), req)
	if err == nil {
		t.Fatalf("token %d was granted while another has the lock with token %d", grant.Token, second.Token)
	}
	want.Release(t, other, second)
	await.Event(t, woken, "the wake-up")
	if grant = want.Acquire(t, store, req); grant.Token <= second.Token {
		t.Errorf("token %d after %d", grant.Token, second.Token)
	}
	want.Release(t, store, grant)
}
