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
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-zookeeper/zk"
)

var curatorNode = regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-(lock-|__WRIT__)[0-9]{10}$`)

// TestNodesLookLikeCurators: nodes have the names and places of Curator's, do not contain the
// secret owner, and leave nothing behind.
func TestNodesLookLikeCurators(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
	store := open(t, server.URL()+"/locks")
	req := request("orders/42")
	grant := acquire(t, store, req)
	waiting := request("orders/42")
	waiting.Fair, waiting.Queue = true, true
	if _, err := store.Acquire(t.Context(), waiting); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
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
	release(t, store, grant)
	next := acquire(t, store, waiting)
	release(t, store, next)
	eventually(t, "the empty container vanishes", func() bool {
		there, _, err := conn.Exists("/locks/orders%2F42")
		return err == nil && !there
	})
	release(t, store, acquire(t, store, request("orders/42"))) // creates the container again
}

// TestContainerDataIsKept: locking a path keeps the data that another program stored there.
func TestContainerDataIsKept(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	if _, err := conn.Create("/entity", []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"fair", "unfair"} {
		store := open(t, server.URL()+"?order="+order)
		for range 3 {
			grant := acquire(t, store, request("entity"))
			wantHeld(t, store, "entity", "it was just granted")
			release(t, store, grant)
		}
	}
	if data, _, err := conn.Get("/entity"); err != nil || string(data) != "precious" {
		t.Errorf("the data are %q, %v", data, err)
	}
}

// TestOtherChildrenAreIgnored: nodes that are not contenders' do not affect the lock.
func TestOtherChildrenAreIgnored(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for _, node := range []string{"/n", "/n/!config", "/n/zz", "/n/block-1", "/n/deadlock-info"} {
		if _, err := conn.Create(node, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	for _, order := range []string{"fair", "unfair"} {
		store := open(t, server.URL()+"?order="+order)
		grant := acquire(t, store, request("n"))
		wantHeld(t, store, "n", "it was just granted")
		release(t, store, grant)
		if info, held, err := store.Find(t.Context(), "n"); err != nil || held {
			t.Errorf("%s: Find returns %+v, %v, %v; want no holder", order, info, held, err)
		}
	}
}

// TestDiagnoseSurvivesReaping: ZooKeeper removes the empty container that Diagnose has created
// before Diagnose does.
func TestDiagnoseSurvivesReaping(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeperReaping)
	conn := admin(t, server.Addr())
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
	happens(t, removed, "the removal of the container")
}

// TestOrdersExcludeEachOther: the two orders exclude and wake each other.
func TestOrdersExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	fair, unfair := open(t, server.URL()), open(t, server.URL()+"?order=unfair")
	for _, pair := range [][2]driver.Store{{fair, unfair}, {unfair, fair}} {
		grant := acquire(t, pair[0], request("n"))
		wantHeld(t, pair[1], "n", "the other order has it")
		next := make(chan error, 1)
		go func() {
			lease, err := client(t, pair[1], nil).Lock(t.Context(), "n")
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			next <- err
		}()
		eventually(t, "the other contender waits", func() bool {
			figures, err := server.Monitor(t.Context())
			return err == nil && figures["zk_watch_count"] == "1"
		})
		release(t, pair[0], grant)
		if err := happens(t, next, "the lock"); err != nil {
			t.Error(err)
		}
	}
	// lock-0 does not pass a queue.
	grant := acquire(t, fair, request("q"))
	queued := request("q")
	queued.Fair, queued.Queue = true, true
	if _, err := fair.Acquire(t.Context(), queued); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	release(t, fair, grant)
	wantHeld(t, unfair, "q", "a waiter queues")
	release(t, fair, acquire(t, fair, queued))
	release(t, unfair, acquire(t, unfair, request("q")))

	// Waiters of both orders get the lock, one after another.
	grant = acquire(t, fair, request("mixed"))
	var waiters []<-chan outcome
	for i, store := range []driver.Store{unfair, fair, unfair, fair} {
		other := open(t, server.URL()+"?order="+[]string{"unfair", "fair"}[i%2])
		waiters = append(waiters, lockLater(t, client(t, other, nil), "mixed"), lockLater(t, client(t, store, nil), "mixed"))
	}
	eventually(t, "the waiters watch", func() bool { return watchCount(t, server) >= 3 })
	release(t, fair, grant)
	last := grant.Token
	for range waiters {
		var got outcome
		eventually(t, "the next turn", func() bool {
			for _, w := range waiters {
				select {
				case got = <-w:
					return true
				default:
				}
			}
			return false
		})
		if got.err != nil || got.lease.Token() <= last {
			t.Fatalf("the next waiter: %v; want a token larger than %d", got, last)
		}
		last = got.lease.Token()
		if err := got.lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestGoZooKeeperLock: the Lock of the client library and dlock exclude and wake each other.
func TestGoZooKeeperLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			store := open(t, server.URL()+"/shared?order="+order)
			locks := client(t, store, nil)
			theirs := zk.NewLock(conn, "/shared/n", zk.WorldACL(zk.PermAll))
			if err := theirs.Lock(); err != nil {
				t.Fatal(err)
			}
			if _, err := locks.TryLock(t.Context(), "n"); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("TryLock: %v; want ErrHeld", err)
			}
			woken := make(chan error, 1)
			var lease *dlock.Lease
			go func() {
				var err error
				lease, err = locks.Lock(t.Context(), "n")
				woken <- err
			}()
			eventually(t, "dlock waits", func() bool {
				figures, err := server.Monitor(t.Context())
				return err == nil && figures["zk_watch_count"] == "1"
			})
			if err := theirs.Unlock(); err != nil {
				t.Fatal(err)
			}
			if err := happens(t, woken, "dlock's turn"); err != nil {
				t.Fatal(err)
			}
			go func() { woken <- theirs.Lock() }()
			eventually(t, "the other contender waits", func() bool { return len(contenders(t, conn, "shared/n")) == 2 })
			select {
			case err := <-woken:
				t.Fatalf("the other Lock got the lock that dlock holds: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if err := happens(t, woken, "the turn of the other Lock"); err != nil {
				t.Fatal(err)
			}
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
		grant := acquire(t, holder, req)
		if errs := holder.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatal(errs)
		}
		if err := other.Break(t.Context(), order, grant.Token); err != nil {
			t.Fatal(err)
		}
		happens(t, lost, "the call of Lost")
		if err := holder.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
	}
}

// TestWaiterOfRemovedNodeIsNotGranted: the nodes of a waiter are removed while it waits. The
// removal of the nodes ahead does not give it the lock.
func TestWaiterOfRemovedNodeIsNotGranted(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	const timeout = 4 * time.Second
	store, other := open(t, server.URL()+"?timeout="+timeout.String()), open(t, server.URL())
	before := acquire(t, other, request("x"))
	req := request("x")
	req.Queue = true
	woken := make(chan struct{}, 1)
	stop, err := store.Watch(t.Context(), req, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	start := time.Now()
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
	}
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
			if err := conn.Delete("/x/"+node, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "its node was last seen too long ago", func() bool { return time.Since(start) > timeout/16 })
	release(t, store, acquire(t, store, request("y"))) // the leader confirms the session
	release(t, other, before)
	second := acquire(t, other, request("x"))
	happens(t, woken, "the wake-up")
	grant, err := store.Acquire(t.Context(), req)
	if err == nil {
		t.Fatalf("token %d was granted while another has the lock with token %d", grant.Token, second.Token)
	}
	release(t, other, second)
	happens(t, woken, "the wake-up")
	if grant = acquire(t, store, req); grant.Token <= second.Token {
		t.Errorf("token %d after %d", grant.Token, second.Token)
	}
	release(t, store, grant)
}
