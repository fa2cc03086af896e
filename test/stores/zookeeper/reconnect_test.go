package zookeeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestReconnectionWakesWaiters: the store may miss events while it has no connection, so it
// wakes its waiters after a reconnection.
func TestReconnectionWakesWaiters(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	holder := open(t, server.URL())
	first := request("x")
	first.TTL = time.Hour // so that no expiry wakes the waiter
	grant := want.Acquire(t, holder, first)
	for _, order := range []string{"fair", "unfair"} {
		store, p := throughProxy(t, server, "?order="+order)
		req := request("x")
		req.Queue = order == "fair"
		woken := want.Watch(t, store, req)
		mustWait(t, store, req)
		select {
		case <-woken:
			t.Fatalf("%s: the waiter was woken before the reconnection", order)
		default:
		}
		p.Reset()
		await.Event(t, woken, order+": the wake-up after the reconnection")
	}
	want.Release(t, holder, grant)
}

// TestReplacedNodesAreNoticedAfterReconnection: while the store has no connection, the nodes that
// it watches are replaced by nodes of other holders with the same names. When the client restores
// its watches, the server does not report that, because the client claims to know all changes. The
// test achieves this by raising the zxid in the client's request; in practice a later answer raises
// it. The next renewal finds the loss all the same, and the waiter gets the lock after the new
// holder's release.
func TestReplacedNodesAreNoticedAfterReconnection(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "?order=unfair")
	other := open(t, server.URL()+"?order=unfair")
	held := want.Acquire(t, store, request("held"))
	want.Renew(t, store, "of what is held", held)
	before := want.Acquire(t, other, request("wanted"))
	wanted := request("wanted")
	woken := want.Watch(t, store, wanted)
	want.Held(t, store, wanted, "another has it")

	p.Hang(true)
	p.Reset()
	want.Break(t, other, held)
	want.Acquire(t, other, request("held"))
	want.Release(t, other, before)
	next := want.Acquire(t, other, request("wanted"))
	restored := p.OnRequest(raiseZxid, nil)
	p.Hang(false)
	p.Reset()
	await.Event(t, restored, "the request to restore the watches")
	want.Error(t, "Renew of a lock that was broken", want.RenewError(t, store, held), driver.ErrNotHeld)
	await.Event(t, woken, "the wake-up after the reconnection")
	want.Held(t, store, wanted, "another has it")
	want.Release(t, other, next)
	await.Event(t, woken, "the wake-up after the release")
	want.Release(t, store, want.Acquire(t, store, wanted))
}

// TestRestOfLostLockIsRemovedAfterAnOutage: an operator removes the holder's node, and the store
// loses its connection as it removes the companion. The store removes it when a server answers
// again, although its session has lived on, so that no contender waits for a lock without a holder.
func TestRestOfLostLockIsRemovedAfterAnOutage(t *testing.T) {
	t.Parallel()
	server, conn := start(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	grant := want.Acquire(t, store, request("x"))
	want.Renew(t, store, "of what is held", grant)
	lost := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("__WRIT__")) },
		func(c *proxy.Conn) { p.Hang(true); c.Reset() })
	want.OK(t, conn.Delete("/x/"+contenders(t, conn, "x")[0], -1))
	await.Event(t, lost, "the removal of the companion")
	<-time.After(7 * time.Second) // longer than a call waits for a connection, less than the session's timeout
	p.Hang(false)
	p.Reset()
	granted(t, other, "x")
}

// raiseZxid finds the request by which the client restores its watches, and raises its first field:
// the last change that the client knows.
func raiseZxid(requests []byte) bool {
	const setWatches, header = 101, 12
	for len(requests) >= header+8 {
		if binary.BigEndian.Uint32(requests[8:]) == setWatches {
			binary.BigEndian.PutUint64(requests[header:], math.MaxInt64)
			return true
		}
		requests = requests[min(4+int(binary.BigEndian.Uint32(requests)), len(requests)):]
	}
	return false
}

// TestShorterTimeoutAfterReconnection: a server with a smaller limit grants the session a shorter
// timeout than before, so that the promise of an earlier grant cannot be kept. The holder learns that
// it has lost the lock, and no renewal makes the promise again.
func TestShorterTimeoutAfterReconnection(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	store, p := throughProxy(t, server, "?timeout=40s")
	other := open(t, server.URL())
	req, lost := request("x"), make(chan struct{})
	req.Lost = func() { close(lost) }
	grant := want.Acquire(t, store, req)
	short := request("short")
	short.TTL = 15 * time.Second // three quarters of the shorter timeout
	kept := want.Acquire(t, store, short)
	shortened := p.OnRequest(shortenTimeout, nil)
	p.Reset()
	await.Event(t, shortened, "the request for the session")

	renewed := time.Now()
	errs := store.Renew(t.Context(), []driver.Grant{grant, kept})
	if len(errs) != 2 || !errors.Is(errs[0], driver.ErrNotHeld) || errs[1] != nil {
		t.Errorf("Renew: %v; want ErrNotHeld for the long TTL alone", errs)
		p.Hold(proxy.Requests, proxy.Replies) // until the session has ended
		granted(t, other, "x")
		t.Fatalf("another owner had the lock after %v, although the renewal promised it for %v", time.Since(renewed), grant.TTL)
	}
	await.Event(t, lost, "the report of the loss")
	want.Held(t, other, request("x"), "the holder has time to stop")
	want.Release(t, store, grant)
	want.Release(t, other, want.Acquire(t, other, request("x")))
}

// shortenTimeout finds the client's request for a session, and asks for a timeout of 20 seconds.
func shortenTimeout(request []byte) bool {
	const connectLength, timeout = 44, 16
	if len(request) < 4+connectLength || binary.BigEndian.Uint64(request) != connectLength<<32 {
		return false
	}
	binary.BigEndian.PutUint32(request[timeout:], 20_000)
	return true
}
