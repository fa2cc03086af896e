package redis

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedlockLateAnswer: a member whose answer to an attempt, or to the raising of its token, was too
// late has the lock. When another member fails, it counts for the majority: the lock is renewed, found
// with its token, and broken.
func TestRedlockLateAnswer(t *testing.T) {
	t.Run("attempt", func(t *testing.T) { answersLate(t, 1) })
	t.Run("raise", func(t *testing.T) { answersLate(t, 2) })
}

// answersLate delays one of the requests that the third member gets for a lock: the first is the attempt,
// the second raises its token to that of the others.
func answersLate(t *testing.T, which int32) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	addrs := group.Addrs()
	link := proxy.Run(t, addrs[2])
	addrs[2] = link.Addr()
	store := openRedlock(t, addrs...)
	take := taker(t, store, "warm") // so that members know the scripts, and the store knows their clocks
	take()
	take()

	raw := clients(t, group.Addrs()...)
	for i, server := range raw { // all have a counter, and that of the third is behind
		setCounter(t, server, "plain", "late", uint64(time.Now().Add(time.Duration(1-i/2)*10*time.Second).UnixMicro()))
	}
	var requests atomic.Int32
	came, let := make(chan struct{}), make(chan struct{})
	deliver := sync.OnceFunc(func() { close(let) })
	defer deliver() // also if the test fails
	passed := link.OnRequest(
		func(request []byte) bool {
			return bytes.Contains(request, []byte("late")) && requests.Add(1) == which
		},
		func(*proxy.Conn) { close(came); <-let })
	grant := acquireOne(t, store, "late")
	<-came
	<-time.After(2 * memberTimeout)
	deliver()
	<-passed
	eventually(t, "the third member carries out the attempt", func() bool { return raw[2].Exists(t.Context(), "late").Val() == 1 })

	must(t, group[1].Kill())
	if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Fatalf("Renew, with two of three members that have the lock: %v", errs)
	}
	eventually(t, "the lock is found with its token", func() bool {
		info, held, err := store.Find(t.Context(), "late")
		return err == nil && held && info.Token == grant.Token
	})
	if err := store.Break(t.Context(), "late", grant.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	if n := raw[2].Exists(t.Context(), "late").Val(); n != 0 {
		t.Error("the third member keeps a lock that was broken")
	}
}
