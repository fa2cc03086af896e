package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// throughProxy is a store behind a proxy, with a session that has begun.
func throughProxy(t testing.TB, server *servers.Server, query string) (*zklock.Store, *proxy.Proxy) {
	t.Helper()
	p := proxy.Run(t, server.Addr())
	store := open(t, "zookeeper://"+p.Addr()+query)
	release(t, store, acquire(t, store, request("warm-up-"+p.Addr())))
	return store, p
}

// TestLostAnswerToACreation: the node that was created is found again by its ID, and
// no second one is created.
func TestLostAnswerToACreation(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for _, order := range []string{"fair", "unfair"} {
		store, p := throughProxy(t, server, "?order="+order)
		name := "guid-" + order
		lost := p.LoseReply(acquires(name), true)
		grant := acquire(t, store, request(name))
		happens(t, lost, "the lost answer")
		children := contenders(t, conn, name)
		if len(children) != 1 {
			t.Fatalf("%s: the nodes are %q; want one", order, children)
		}
		_, stat, err := conn.Get("/" + name + "/" + children[0])
		if err != nil || uint64(stat.Czxid) != grant.Token {
			t.Errorf("%s: the token is %d, and the node's czxid %d, %v", order, grant.Token, stat.Czxid, err)
		}
		refused(t, open(t, server.URL()), name, "it was granted")
		release(t, store, grant)
		other := open(t, server.URL())
		release(t, other, acquire(t, other, request(name)))
	}
}

// TestConnectionBreaksUnderARefusal: whoever is refused hears that, and leaves no node
// behind, however often the connection breaks.
func TestConnectionBreaksUnderARefusal(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	holder := open(t, server.URL())
	grant := acquire(t, holder, request("taken"))
	store, p := throughProxy(t, server, "")
	lost := p.LoseReply(removes("taken"), true)
	refused(t, store, "taken", "the connection broke when the node was removed")
	happens(t, lost, "the lost answer")

	const breaks = 12
	var broke atomic.Int32
	for i := range int32(breaks) {
		p.OnRequest(func(request []byte) bool { return broke.Load() == i && bytes.Contains(request, []byte("taken")) },
			func(c *proxy.Conn) { broke.Add(1); c.Reset() })
	}
	refused(t, store, "taken", "the connection broke again and again")
	if n := broke.Load(); n != breaks {
		t.Errorf("the connection broke %d times; want %d", n, breaks)
	}
	if children, _, err := conn.Children("/taken"); err != nil || len(children) != 1 {
		t.Errorf("the nodes are %q, %v; want the holder's", children, err)
	}
	release(t, holder, grant)
}

// TestNodeOfAnOldSession: a node that was created in a session that is over is never
// taken for ours, though it has our ID and is still there.
func TestNodeOfAnOldSession(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	const timeout = 2 * time.Second
	store, p := throughProxy(t, server, "?timeout="+timeout.String())
	req := request("old")
	// The node is created, nobody hears of it, and the session ends meanwhile.
	p.OnRequest(acquires("old"), func(*proxy.Conn) { p.Hold(proxy.Replies) })
	ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
	defer cancel()
	if _, err := store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire without an answer: %v", err)
	}
	children, _, err := conn.Children("/old")
	if err != nil || len(children) != 1 {
		t.Fatalf("the nodes are %q, %v; want one", children, err)
	}
	old := children[0]
	p.Hold()
	eventually(t, "the session ends", func() bool {
		there, _, err := conn.Exists("/old/" + old)
		return err == nil && !there
	})
	// One that looks the same, of a session that lives: of the test.
	if _, err := conn.Create("/old/"+old, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	p.Deliver()
	p.Reset()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil && !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire in a new session: %v", err)
	}
	if there, stat, _ := conn.Exists("/old/" + old); there && err == nil && uint64(stat.Czxid) == grant.Token {
		t.Errorf("the node of another session was taken for ours, with token %d", grant.Token)
	}
	_ = store.Release(t.Context(), driver.Grant{Name: "old", Owner: req.Owner})
}

// watching is a store that tells when somebody watches.
type watching struct {
	*zklock.Store
	begun chan<- struct{}
}

func (w watching) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	stop, err := w.Store.Watch(ctx, req, wake)
	if err == nil {
		select {
		case w.begun <- struct{}{}:
		default: // it is known already
		}
	}
	return stop, err
}

// TestSessionEndsWhileHeldAndWaiting: the holder hears of it, the waiter goes on in a
// new session, and both on the network's return.
func TestSessionEndsWhileHeldAndWaiting(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second
			query := fmt.Sprintf("/%s?order=%s&timeout=", order, order)
			cut, p := throughProxy(t, server, query+timeout.String())
			lost := make(chan struct{})
			mine := request("mine")
			mine.Lost = func() { close(lost) }
			old := acquire(t, cut, mine)

			other := open(t, server.URL()+query+"30s")
			theirs := acquire(t, other, request("theirs"))
			waited := make(chan error, 1)
			watches := make(chan struct{}, 1)
			waiter := client(t, watching{cut, watches}, nil)
			go func() {
				lease, err := waiter.Lock(t.Context(), "theirs")
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				waited <- err
			}()
			happens(t, watches, "the waiter's watch")

			p.Hold()
			var next driver.Grant
			eventually(t, "the session ends", func() (free bool) {
				var err error
				next, err = other.Acquire(t.Context(), mineAgain)
				return err == nil
			})
			if next.Token <= old.Token {
				t.Errorf("token %d after %d", next.Token, old.Token)
			}
			p.Reset()
			p.Deliver()
			happens(t, lost, "the news that the session has ended")
			if errs := cut.Renew(t.Context(), []driver.Grant{old}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
				t.Errorf("Renew of what was lost: %v", errs)
			}
			if err := cut.Release(t.Context(), old); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of what was lost: %v", err)
			}
			release(t, other, theirs)
			if err := happens(t, waited, "the waiter's turn"); err != nil {
				t.Errorf("the waiter: %v", err)
			}
			release(t, other, next)
		})
	}
}

var mineAgain = request("mine")

// TestOneNodeForManyWaiters: 10,000 goroutines that wait for one name in one process
// have one node, or none, and one watch.
func TestOneNodeForManyWaiters(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	for order, nodes := range map[string]int{"fair": 2, "unfair": 1} {
		holder := open(t, server.URL()+"?order="+order)
		grant := acquire(t, holder, request(order))
		c := dlock.New(open(t, server.URL()+"?order="+order), nil)
		ctx, cancel := context.WithCancel(t.Context())
		const waiters = 10_000
		gone := make(chan error, waiters)
		for range waiters {
			go func() { _, err := c.Lock(ctx, order); gone <- err }()
		}
		eventually(t, "somebody waits", func() bool { return watchCount(t, server) == 1 })
		most := 0
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for range 25 { // in which nothing is to change
			<-look.C
			most = max(most, len(contenders(t, conn, order)))
			if n := watchCount(t, server); n > 1 {
				t.Fatalf("%s: %d watches for %d waiters", order, n, waiters)
			}
		}
		if most > nodes {
			t.Errorf("%s: %d nodes for a holder and %d waiters; want %d", order, most, waiters, nodes)
		}
		cancel()
		for range waiters {
			if err := happens(t, gone, "the end of a wait"); !errors.Is(err, context.Canceled) {
				t.Fatalf("a cancelled wait: %v", err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		release(t, holder, grant)
		eventually(t, "no watch is left", func() bool { return watchCount(t, server) == 0 })
	}
}

func watchCount(t testing.TB, server *servers.Server) int {
	t.Helper()
	return figure(t, server, "zk_watch_count")
}

// figure is one of those that the server counts. Asking for it is counted as a packet.
func figure(t testing.TB, server *servers.Server, name string) int {
	t.Helper()
	figures, err := server.Monitor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(figures[name])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestHandoverIsCheap: who waits creates its node by the first attempt, looks who is
// before it and watches, and has the lock when the watch says so, without asking.
func TestHandoverIsCheap(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	clients := []*dlock.Client{client(t, open(t, server.URL()), nil), client(t, open(t, server.URL()), nil)}
	lease, err := clients[0].Lock(t.Context(), "hot")
	if err != nil {
		t.Fatal(err)
	}
	const turns = 40
	before, asked := figure(t, server, "zk_packets_received"), 1
	for i := range turns {
		next := make(chan *dlock.Lease, 1)
		go func() {
			lease, err := clients[(i+1)%2].Lock(t.Context(), "hot")
			if err != nil {
				t.Errorf("Lock: %v", err)
			}
			next <- lease
		}()
		eventually(t, "the other one watches", func() bool { asked++; return watchCount(t, server) == 1 })
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if lease = happens(t, next, "the other one's turn"); lease == nil {
			t.FailNow()
		}
	}
	n := figure(t, server, "zk_packets_received") - before - asked
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if most := 5 * turns; n > most {
		t.Errorf("%d requests for %d turns; want %d at most", n, turns, most)
	}
}

// begun is a context that tells when somebody waits for its end.
type begun struct {
	context.Context
	tell func()
}

func (b begun) Done() <-chan struct{} {
	b.tell()
	return b.Context.Done()
}

// TestCloseEndsCalls: a call that waits for a connection or for an answer is over when the
// store is closed, and says that.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	silent, p := throughProxy(t, servers.Run(t, servers.ZooKeeper), "")
	p.Hold(proxy.Replies)
	hangs := proxy.Run(t, "127.0.0.1:1")
	hangs.Hang(true)
	for why, store := range map[string]*zklock.Store{
		"no session":     open(t, "zookeeper://"+hangs.Addr()),
		"nobody answers": silent,
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			waits := make(chan struct{})
			ctx := begun{t.Context(), sync.OnceFunc(func() { close(waits) })}
			result := make(chan error, 1)
			go func() {
				_, err := store.Acquire(ctx, request("x"))
				result <- err
			}()
			happens(t, waits, "the call")
			if store == silent && !p.Held(proxy.Replies, limit) {
				t.Fatal("nothing was asked")
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if err := happens(t, result, "its end"); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Acquire: %v; want that the store is closed", err)
			}
		})
	}
}
