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
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// throughProxy returns a store behind a proxy, with a session that has begun.
func throughProxy(t testing.TB, server *servers.Server, query string) (*zklock.Store, *proxy.Proxy) {
	t.Helper()
	p := proxy.Run(t, server.Addr())
	store := open(t, "zookeeper://"+p.Addr()+query)
	release(t, store, acquire(t, store, request("warm-up-"+p.Addr())))
	return store, p
}

// TestLostCreationAnswerFindsNode: after a lost answer the store finds the created node by its
// ID, and creates no second one.
func TestLostCreationAnswerFindsNode(t *testing.T) {
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
		if err != nil || uint64(stat.Czxid) != tokenstep.Number(grant.Token) {
			t.Errorf("%s: the token is %d; want one of the node's czxid %d (%v)", order, grant.Token, stat.Czxid, err)
		}
		wantHeld(t, open(t, server.URL()), name, "it was granted")
		release(t, store, grant)
		other := open(t, server.URL())
		release(t, other, acquire(t, other, request(name)))
	}
}

// TestRefusalSurvivesBrokenConnections: a refused attempt returns ErrHeld and leaves no node,
// however often the connection breaks.
func TestRefusalSurvivesBrokenConnections(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	holder := open(t, server.URL())
	store, p := throughProxy(t, server, "")
	var grant driver.Grant
	overtaken := p.OnRequest(acquires("taken"), func(*proxy.Conn) { grant, _ = holder.Acquire(t.Context(), request("taken")) })
	lost := p.LoseReply(removes("taken"), true)
	wantHeld(t, store, "taken", "the connection broke when the node was removed")
	happens(t, overtaken, "the lock was free when the attempt looked")
	happens(t, lost, "the lost answer")

	const breaks = 12
	var broke atomic.Int32
	for i := range int32(breaks) {
		p.OnRequest(func(request []byte) bool { return broke.Load() == i && bytes.Contains(request, []byte("taken")) },
			func(c *proxy.Conn) { broke.Add(1); c.Reset() })
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit) // longer than a call takes otherwise
	defer cancel()
	if _, err := store.Acquire(ctx, request("taken")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire: %v; want ErrHeld: the connection broke again and again", err)
	}
	if n := broke.Load(); n != breaks {
		t.Errorf("the connection broke %d times; want %d", n, breaks)
	}
	if children := childrenOf(t, conn, "taken"); len(children) != 2 {
		t.Errorf("the nodes are %q; want the holder's two", children)
	}
	release(t, holder, grant)
}

// TestNodeOfOldSessionIsNotAdopted: the store does not adopt a node of an earlier session, though
// the node has its ID and still exists.
func TestNodeOfOldSessionIsNotAdopted(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "?timeout=5s")
	req := request("old")
	// The node is created, the answer is lost, and the session ends.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(acquires("old"), func(*proxy.Conn) { p.Hold(proxy.Replies); cancel() })
	if _, err := store.Acquire(ctx, req); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire without an answer: %v", err)
	}
	old := ""
	eventually(t, "the node is created", func() bool {
		if there, _, err := conn.Exists("/old"); err != nil || !there {
			return false
		}
		children := contenders(t, conn, "old")
		if len(children) != 1 {
			return false
		}
		old = children[0]
		return true
	})
	// ZooKeeper may remove a container that is empty.
	if _, err := conn.Create("/old/other", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	p.Hold()
	eventually(t, "the session ends", func() bool {
		there, _, err := conn.Exists("/old/" + old)
		return err == nil && !there
	})
	// The test creates the same node in a session that lives.
	if _, err := conn.Create("/old/"+old, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	p.Deliver()
	p.Reset()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil && !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire in a new session: %v", err)
	}
	if there, stat, _ := conn.Exists("/old/" + old); there && err == nil && uint64(stat.Czxid) == tokenstep.Number(grant.Token) {
		t.Errorf("the store adopted the node of another session, with token %d", grant.Token)
	}
	_ = store.Release(t.Context(), driver.Grant{Name: "old", Owner: req.Owner})
}

// reportingStore is a store that reports when a watch has begun.
type reportingStore struct {
	*zklock.Store
	begun chan<- struct{}
}

func (w reportingStore) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	stop, err := w.Store.Watch(ctx, req, wake)
	if err == nil {
		select {
		case w.begun <- struct{}{}:
		default: // it was reported before
		}
	}
	return stop, err
}

// TestSessionEndReportsLossAndWaitersGoOn: when the network returns after the end of the
// session, the holder learns of the loss, and the waiter goes on in a new session.
func TestSessionEndReportsLossAndWaitersGoOn(t *testing.T) {
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
			waiter := client(t, reportingStore{cut, watches}, nil)
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
			mineAgain := request("mine")
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
			happens(t, lost, "the call of Lost")
			if errs := cut.Renew(t.Context(), []driver.Grant{old}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
				t.Errorf("Renew of a lost lock: %v; want ErrNotHeld", errs)
			}
			if err := cut.Release(t.Context(), old); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of a lost lock: %v; want ErrNotHeld", err)
			}
			release(t, other, theirs)
			if err := happens(t, waited, "the waiter's turn"); err != nil {
				t.Errorf("the waiter: %v", err)
			}
			release(t, other, next)
		})
	}
}

// TestOneNodeForManyWaiters: 10,000 goroutines that wait for one name in one process share one
// watch, and one node with the order Fair.
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
		eventually(t, "a waiter watches", func() bool { return watchCount(t, server) == 1 })
		most := 0
		poll := time.NewTicker(20 * time.Millisecond)
		defer poll.Stop()
		for range 25 { // nothing may change meanwhile
			<-poll.C
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
	return statistic(t, server, "zk_watch_count")
}

// statistic returns one of the server's statistics. Asking for it counts as a packet.
func statistic(t testing.TB, server *servers.Server, name string) int {
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

// TestHandoverSendsFewRequests: the first attempt of a waiter creates its node, lists the queue
// and watches. When the watch fires, the waiter has the lock without another request.
func TestHandoverSendsFewRequests(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	clients := []*dlock.Client{client(t, open(t, server.URL()), nil), client(t, open(t, server.URL()), nil)}
	lease, err := clients[0].Lock(t.Context(), "hot")
	if err != nil {
		t.Fatal(err)
	}
	const turns = 40
	before, asked := statistic(t, server, "zk_packets_received"), 1
	for i := range turns {
		next := make(chan *dlock.Lease, 1)
		go func() {
			lease, err := clients[(i+1)%2].Lock(t.Context(), "hot")
			if err != nil {
				t.Errorf("Lock: %v", err)
			}
			next <- lease
		}()
		eventually(t, "the other client watches", func() bool { asked++; return watchCount(t, server) == 1 })
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if lease = happens(t, next, "the turn of the other client"); lease == nil {
			t.FailNow()
		}
	}
	n := statistic(t, server, "zk_packets_received") - before - asked
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if most := 5 * turns; n > most {
		t.Errorf("%d requests for %d turns; want %d at most", n, turns, most)
	}
}

// reportingContext is a context that reports when a call begins to wait for its end.
type reportingContext struct {
	context.Context
	report func()
}

func (c reportingContext) Done() <-chan struct{} {
	c.report()
	return c.Context.Done()
}

// TestCloseEndsCalls: Close ends calls that wait for a connection or for an answer. They
// return ErrClosed.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	silent, p := throughProxy(t, servers.Run(t, servers.ZooKeeper), "")
	p.Hold(proxy.Replies)
	hangs := proxy.Run(t, "127.0.0.1:1")
	hangs.Hang(true)
	for why, store := range map[string]*zklock.Store{
		"no session": open(t, "zookeeper://"+hangs.Addr()),
		"no answer":  silent,
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			waits := make(chan struct{})
			ctx := reportingContext{t.Context(), sync.OnceFunc(func() { close(waits) })}
			result := make(chan error, 1)
			go func() {
				_, err := store.Acquire(ctx, request("x"))
				result <- err
			}()
			happens(t, waits, "the call")
			if store == silent && !p.Held(proxy.Replies, limit) {
				t.Fatal("no request was sent")
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if err := happens(t, result, "its end"); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Acquire: %v; want ErrClosed", err)
			}
		})
	}
}
