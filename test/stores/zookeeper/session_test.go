package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"github.com/dlock-go/dlock/zklock"
	"github.com/go-zookeeper/zk"
)

// throughProxy returns a store behind a proxy, with a session that has begun.
func throughProxy(t testing.TB, server *servers.Server, query string) (*zklock.Store, *proxy.Proxy) {
	t.Helper()
	p := proxy.Run(t, server.Addr())
	store := open(t, "zookeeper://"+p.Addr()+query)
	want.Release(t, store, want.Acquire(t, store, request("warm-up-"+p.Addr())))
	return store, p
}

// TestLostCreationAnswerFindsNode: after a lost answer the store finds the created node by its
// ID, and creates no second one.
func TestLostCreationAnswerFindsNode(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	for _, order := range []string{"fair", "unfair"} {
		store, p := throughProxy(t, server, "?order="+order)
		name := "guid-" + order
		lost := p.LoseReply(acquires(name), true)
		grant := want.Acquire(t, store, request(name))
		await.Event(t, lost, "the lost answer")
		children := contenders(t, conn, name)
		if len(children) != 1 {
			t.Fatalf("%s: the nodes are %q; want one", order, children)
		}
		_, stat, err := conn.Get("/" + name + "/" + children[0])
		if err != nil || uint64(stat.Czxid) != tokenstep.Number(grant.Token) {
			t.Errorf("%s: the token is %d; want one of the node's czxid %d (%v)", order, grant.Token, stat.Czxid, err)
		}
		want.Held(t, open(t, server.URL()), request(name), "it was granted")
		want.Release(t, store, grant)
		other := open(t, server.URL())
		want.Release(t, other, want.Acquire(t, other, request(name)))
	}
}

// TestRefusalSurvivesBrokenConnections: a refused attempt returns ErrHeld and leaves no node,
// however often the connection breaks.
func TestRefusalSurvivesBrokenConnections(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	holder := open(t, server.URL())
	store, p := throughProxy(t, server, "")
	var grant driver.Grant
	overtaken := p.OnRequest(acquires("taken"), func(*proxy.Conn) { grant, _ = holder.Acquire(t.Context(), request("taken")) })
	lost := p.LoseReply(removes("taken"), true)
	want.Held(t, store, request("taken"), "the connection broke when the node was removed")
	await.Event(t, overtaken, "the lock was free when the attempt looked")
	await.Event(t, lost, "the lost answer")

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
	want.Release(t, holder, grant)
}

// TestNodeOfOldSessionIsNotAdopted: the store does not adopt a node of an earlier session, though
// the node has its ID and still exists.
func TestNodeOfOldSessionIsNotAdopted(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "?timeout=5s")
	req := request("old")
	// The node is created, the answer is lost, and the session ends.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.OnRequest(acquires("old"), func(*proxy.Conn) { p.Hold(proxy.Replies); cancel() })
	want.Unknown(t, "Acquire without an answer", want.Err(store.Acquire(ctx, req)))
	old := ""
	await.Until(t, "the node is created", func() bool {
		children := contenders(t, conn, "old")
		if len(children) == 1 {
			old = children[0]
		}
		return old != ""
	})
	// ZooKeeper may remove a container that is empty.
	want.OK(t, want.Err(conn.Create("/old/other", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	p.Hold()
	await.Until(t, "the session ends", func() bool {
		there, _, err := conn.Exists("/old/" + old)
		return err == nil && !there
	})
	// The test creates the same node in a session that lives.
	want.OK(t, want.Err(conn.Create("/old/"+old, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	p.Deliver()
	p.Reset()
	grant, err := store.Acquire(t.Context(), req)
	if err != nil && !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire in a new session: %v", err)
	}
	if there, stat, _ := conn.Exists("/old/" + old); there && err == nil && uint64(stat.Czxid) == tokenstep.Number(grant.Token) {
		t.Errorf("the store adopted the node of another session, with token %d", grant.Token)
	}
	_ = store.Release(t.Context(), want.Undo(req))
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
	inBothOrders(t, func(t *testing.T, order string) {
		const timeout = 2 * time.Second
		query := fmt.Sprintf("/%s?order=%s&timeout=", order, order)
		cut, p := throughProxy(t, server, query+timeout.String())
		lost := make(chan struct{})
		mine := request("mine")
		mine.Lost = func() { close(lost) }
		old := want.Acquire(t, cut, mine)

		other := open(t, server.URL()+query+"30s")
		theirs := want.Acquire(t, other, request("theirs"))
		watches := make(chan struct{}, 1)
		waited := want.Locked(t, client(t, reportingStore{cut, watches}, nil), "theirs")
		await.Event(t, watches, "the waiter's watch")

		p.Hold()
		next := granted(t, other, "mine")
		want.Larger(t, next.Token, old.Token)
		p.Reset()
		p.Deliver()
		await.Event(t, lost, "Lost")
		want.Error(t, "Renew of a lost lock", want.RenewError(t, cut, old), driver.ErrNotHeld)
		want.Error(t, "Release of a lost lock", cut.Release(t.Context(), old), driver.ErrNotHeld)
		want.Release(t, other, theirs)
		want.Unlock(t, want.Served(t, waited, theirs.Token))
		want.Release(t, other, next)
	})
}

// TestOneNodeForManyWaiters: 10,000 goroutines that wait for one name in one process share one
// watch, and one node with the order Fair.
func TestOneNodeForManyWaiters(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	for order, nodes := range map[string]int{"fair": 2, "unfair": 1} {
		holder := open(t, server.URL()+"?order="+order)
		grant := want.Acquire(t, holder, request(order))
		c := dlock.New(open(t, server.URL()+"?order="+order), nil)
		const waiters = 10_000
		leave := want.Waiting(t, c, order, waiters)
		await.Until(t, "a waiter watches", func() bool { return watchCount(t, server) == 1 })
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
		leave()
		want.OK(t, c.Close())
		want.Release(t, holder, grant)
		await.Until(t, "no watch is left", func() bool { return watchCount(t, server) == 0 })
	}
}

func watchCount(t testing.TB, server *servers.Server) int {
	t.Helper()
	return statistic(t, server, "zk_watch_count")
}

// statistic returns one of the server's statistics. Asking for it counts as a packet.
func statistic(t testing.TB, server *servers.Server, name string) int {
	t.Helper()
	figures := want.Value(server.Monitor(t.Context()))(t)
	n := want.Value(strconv.Atoi(figures[name]))(t)
	return n
}

// TestHandoverSendsFewRequests: the first attempt of a waiter creates its node, lists the queue
// and watches. When the watch fires, the waiter has the lock without another request.
func TestHandoverSendsFewRequests(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	clients := []*dlock.Client{client(t, open(t, server.URL()), nil), client(t, open(t, server.URL()), nil)}
	lease := want.Value(clients[0].Lock(t.Context(), "hot"))(t)
	const turns = 40
	before, asked := statistic(t, server, "zk_packets_received"), 1
	for i := range turns {
		next := want.Locked(t, clients[(i+1)%2], "hot")
		await.Until(t, "the other client watches", func() bool { asked++; return watchCount(t, server) == 1 })
		want.Unlock(t, lease)
		lease = want.Served(t, next, lease.Token())
	}
	n := statistic(t, server, "zk_packets_received") - before - asked
	want.Unlock(t, lease)
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
			await.Event(t, waits, "the call")
			if store == silent && !p.Held(proxy.Replies, limit) {
				t.Fatal("no request was sent")
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			want.Error(t, "Acquire", await.Event(t, result, "its end"), driver.ErrClosed)
		})
	}
}

// TestCloseDuringCallsEnds checks that Close returns although calls are under way. A request that is sent
// while the client of ZooKeeper closes may block the client for good.
func TestCloseDuringCallsEnds(t *testing.T) {
	t.Parallel()
	url := servers.URL(t, servers.ZooKeeper) + "/close"
	for range 100 {
		store := want.Value(zklock.Open(t.Context(), url, nil))(t)
		var calls sync.WaitGroup
		for i := range 6 {
			calls.Go(func() {
				for {
					req := driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner(), TTL: 20 * time.Second}
					grant, err := store.Acquire(t.Context(), req)
					if err != nil {
						return
					}
					_ = store.Release(t.Context(), grant)
				}
			})
		}
		_ = backoff.Sleep(t.Context(), rand.N(30*time.Millisecond))
		closed := want.Later(func() error { return store.Close() })
		if err := await.Event(t, closed, "Close returns"); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}
