package zookeeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestReconnectionWakesWaiters: the store may miss events while it has no connection, so it
// wakes its waiters after a reconnection.
func TestReconnectionWakesWaiters(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	holder := open(t, server.URL())
	first := request("x")
	first.TTL = time.Hour // so that no expiry wakes the waiter
	grant := acquire(t, holder, first)
	for _, order := range []string{"fair", "unfair"} {
		store, p := throughProxy(t, server, "?order="+order)
		req := request("x")
		req.Queue = order == "fair"
		woken := make(chan struct{}, 10)
		stop, err := store.Watch(t.Context(), req, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s: Acquire: %v; want ErrHeld", order, err)
		}
		select {
		case <-woken:
			t.Fatalf("%s: the waiter was woken before the reconnection", order)
		default:
		}
		p.Reset()
		happens(t, woken, order+": the wake-up after the reconnection")
		stop()
	}
	release(t, holder, grant)
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
	held := acquire(t, store, request("held"))
	if errs := store.Renew(t.Context(), []driver.Grant{held}); errs != nil { // watches the node
		t.Fatal(errs)
	}
	before := acquire(t, other, request("wanted"))
	wanted := request("wanted")
	woken := make(chan struct{}, 1)
	stop, err := store.Watch(t.Context(), wanted, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := store.Acquire(t.Context(), wanted); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
	}

	p.Hang(true)
	p.Reset()
	if err := other.Break(t.Context(), "held", held.Token); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, request("held"))
	release(t, other, before)
	next := acquire(t, other, request("wanted"))
	restored := p.OnRequest(raiseZxid, nil)
	p.Hang(false)
	p.Reset()
	happens(t, restored, "the request to restore the watches")
	if errs := store.Renew(t.Context(), []driver.Grant{held}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
		t.Errorf("Renew of a lock that was broken: %v; want ErrNotHeld", errs)
	}
	happens(t, woken, "the wake-up after the reconnection")
	if _, err := store.Acquire(t.Context(), wanted); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a held lock: %v; want ErrHeld", err)
	}
	release(t, other, next)
	happens(t, woken, "the wake-up after the release")
	release(t, store, acquire(t, store, wanted))
}

// TestRestOfLostLockIsRemovedAfterAnOutage: an operator removes the holder's node, and the store
// loses its connection as it removes the companion. The store removes it when a server answers
// again, although its session has lived on, so that no contender waits for a lock without a holder.
func TestRestOfLostLockIsRemovedAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	conn := admin(t, server.Addr())
	store, p := throughProxy(t, server, "")
	other := open(t, server.URL())
	grant := acquire(t, store, request("x"))
	if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil { // watches the node
		t.Fatal(errs)
	}
	lost := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte("__WRIT__")) },
		func(c *proxy.Conn) { p.Hang(true); c.Reset() })
	if err := conn.Delete("/x/"+contenders(t, conn, "x")[0], -1); err != nil {
		t.Fatal(err)
	}
	happens(t, lost, "the removal of the companion")
	<-time.After(7 * time.Second) // longer than a call waits for a connection, less than the session's timeout
	p.Hang(false)
	p.Reset()
	eventually(t, "another owner is granted the lock", func() bool {
		_, err := other.Acquire(t.Context(), request("x"))
		return err == nil
	})
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
	grant := acquire(t, store, req)
	short := request("short")
	short.TTL = 15 * time.Second // three quarters of the shorter timeout
	kept := acquire(t, store, short)
	shortened := p.OnRequest(shortenTimeout, nil)
	p.Reset()
	happens(t, shortened, "the request for the session")

	renewed := time.Now()
	errs := store.Renew(t.Context(), []driver.Grant{grant, kept})
	if len(errs) != 2 || !errors.Is(errs[0], driver.ErrNotHeld) || errs[1] != nil {
		t.Errorf("Renew: %v; want ErrNotHeld for the long TTL alone", errs)
		p.Hold(proxy.Requests, proxy.Replies) // until the session has ended
		eventually(t, "another owner is granted the lock", func() bool {
			_, err := other.Acquire(t.Context(), request("x"))
			return err == nil
		})
		t.Fatalf("another owner had the lock after %v, although the renewal promised it for %v", time.Since(renewed), grant.TTL)
	}
	happens(t, lost, "the report of the loss")
	wantHeld(t, other, "x", "the holder has time to stop")
	release(t, store, grant)
	release(t, other, acquire(t, other, request("x")))
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
