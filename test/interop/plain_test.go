package interop

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for name, newPeer := range peersInGo {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sharePlain(t, func(t testing.TB) plain {
				client := connect(t, servers.Run(t, servers.Redis, "--appendonly", "no")) // a shared disk may be slow
				return plain{client, newClient(t, newStore(t, client, redislock.Plain)), newPeer(t, client), shortTTL}
			})
		})
	}
}

// plain is dlock and a peer that share locks.
type plain struct {
	redis *redis.Client // the server, or one of several
	dlock *dlock.Client
	peer  peer
	ttl   time.Duration // of locks that have to expire soon
}

// shortTTL is short for one server.
const shortTTL = time.Second

// sharePlain tests dlock and a peer, each test with servers of its own.
func sharePlain(t *testing.T, start func(t testing.TB) plain) {
	for name, test := range map[string]func(t *testing.T, p plain){
		"exclusion":        plainExclusion,
		"hand-over":        plainHandOver,
		"extension":        plainExtension,
		"renewal":          plainRenewal,
		"expiry":           plainExpiry,
		"late unlock":      plainLateUnlock,
		"tokens":           plainTokens,
		"names with signs": plainNames,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// plainExclusion checks that each excludes the other until it unlocks.
func plainExclusion(t *testing.T, p plain) {
	p.exclude(t, "shared")
}

// plainNames checks that both use the same key for every kind of name.
func plainNames(t *testing.T, p plain) {
	for _, name := range []string{"a/b:c", "{tag}rest", "锁", "%41", strings.Repeat("x", 255)} {
		p.exclude(t, name)
	}
}

func (p plain) exclude(t *testing.T, name string) {
	t.Helper()
	theirs := peerLocks(t, p.peer, name, longTTL)
	mustRefuse(t, p.dlock, name)
	peerUnlocks(t, theirs)
	ours := tryLock(t, p.dlock, name)
	peerMustRefuse(t, p.peer, name)
	unlock(t, ours)
	peerUnlocks(t, peerLocks(t, p.peer, name, longTTL))
}

// plainHandOver checks that a waiter gets the lock soon after the other program
// unlocked it, although there is no notification.
func plainHandOver(t *testing.T, p plain) {
	const rounds = 5
	var toDlock, toPeer []time.Duration
	theirs := peerLocks(t, p.peer, "x", longTTL)
	for range rounds {
		seen := p.attempts(t)
		later := lockLater(t, p.dlock, "x")
		p.awaitAttempts(t, seen+2)
		peerUnlocks(t, theirs)
		ours := granted(t, later, 2*wakeLimit)
		toDlock = append(toDlock, ours.at.Sub(theirs.began()))

		seen = p.attempts(t)
		theirTurn := p.peer.acquire(t, "x", longTTL, true)
		p.awaitAttempts(t, seen+2)
		began := time.Now()
		unlock(t, ours.lease)
		theirs = peerGets(t, theirTurn, 2*wakeLimit)
		toPeer = append(toPeer, theirs.at.Sub(began))
	}
	peerUnlocks(t, theirs)
	report(t, "from the other program to dlock", toDlock, wakeLimit)
	report(t, "from dlock to the other program", toPeer, wakeLimit)
}

// callsOf parses "calls=7,usec=...". An empty stat means no calls.
func callsOf(stat string) int64 {
	first, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	calls, _ := strconv.ParseInt(first, 10, 64)
	return calls
}

// attempts returns the number of attempts to lock that reached the server.
func (p plain) attempts(t *testing.T) int64 {
	t.Helper()
	stats, err := p.redis.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := int64(0)
	for _, command := range []string{"set", "eval", "evalsha"} {
		calls += callsOf(stats["Commandstats"]["cmdstat_"+command])
	}
	return calls
}

func (p plain) awaitAttempts(t *testing.T, want int64) {
	t.Helper()
	eventually(t, "the waiter has tried twice", func() (bool, error) {
		return p.attempts(t) >= want, nil
	})
}

// plainExtension checks that dlock is excluded for as long as the peer extends
// its lock.
func plainExtension(t *testing.T, p plain) {
	theirs := peerLocks(t, p.peer, "x", p.ttl)
	if err := theirs.extend(longTTL); err != nil {
		t.Fatalf("the other program cannot extend: %v", err)
	}
	if _, err := p.dlock.Lock(t.Context(), "x", dlock.WithWait(2*p.ttl)); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("dlock waited for a lock that was extended: %v; want ErrHeld", err)
	}
	peerUnlocks(t, theirs)
}

// plainRenewal checks that the peer is excluded for as long as dlock renews its
// lock.
func plainRenewal(t *testing.T, p plain) {
	ttl := 3 * p.ttl // a busy machine may delay a renewal
	ours := tryLock(t, p.dlock, "x", dlock.WithTTL(ttl))
	theirTurn := p.peer.acquire(t, "x", longTTL, true)
	select {
	case lock := <-theirTurn:
		t.Fatalf("the other program got an answer while dlock held the lock: %v", lock.err)
	case <-ours.Context().Done():
		t.Fatalf("dlock lost the lock: %v", context.Cause(ours.Context()))
	case <-time.After(2 * ttl):
	}
	unlock(t, ours)
	peerUnlocks(t, peerGets(t, theirTurn, wakeLimit))
}

// plainExpiry checks that a lock that is not unlocked is free when it expires, in
// both directions.
func plainExpiry(t *testing.T, p plain) {
	start := time.Now()
	peerLocks(t, p.peer, "x", p.ttl)
	ours := granted(t, lockLater(t, p.dlock, "x", dlock.WithFixedTTL(p.ttl)), p.ttl+wakeLimit)
	if took := ours.at.Sub(start); took < p.ttl {
		t.Errorf("dlock got the lock after %v; its TTL is %v", took, p.ttl)
	}
	theirs := peerGets(t, p.peer.acquire(t, "x", longTTL, true), p.ttl+wakeLimit)
	if ours.lease.Context().Err() == nil {
		t.Error("dlock trusts a lock that the other program holds")
	}
	if err := ours.lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock of a lock that expired: %v; want ErrNotHeld", err)
	}
	mustRefuse(t, p.dlock, "x")
	peerUnlocks(t, theirs)
}

// plainLateUnlock checks that a late unlock does not free the lock of the new
// holder.
func plainLateUnlock(t *testing.T, p plain) {
	theirs := peerLocks(t, p.peer, "x", p.ttl)
	ours := granted(t, lockLater(t, p.dlock, "x"), p.ttl+wakeLimit)
	if err := theirs.extend(longTTL); err == nil {
		t.Error("the other program extended a lock that it had lost")
	}
	if err := theirs.unlock(); err == nil {
		t.Error("the other program unlocked a lock that it had lost")
	}
	peerMustRefuse(t, p.peer, "x")
	unlock(t, ours.lease)
}

// plainTokens checks that dlock's tokens rise although the peers have none.
func plainTokens(t *testing.T, p plain) {
	last := uint64(0)
	for range 5 {
		ours := tryLock(t, p.dlock, "x")
		if ours.Token() <= last {
			t.Errorf("token %d after %d", ours.Token(), last)
		}
		last = ours.Token()
		unlock(t, ours)
		peerUnlocks(t, peerLocks(t, p.peer, "x", longTTL))
	}
}
