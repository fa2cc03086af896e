package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// TestContendersMakeProgress: contenders want the same lock all the time, and calls to the five
// members take random times, so that votes are often split. Each contender gets the lock again
// and again, and holds it alone.
func TestContendersMakeProgress(t *testing.T) {
	for name, c := range map[string]struct {
		polls             bool
		travel            time.Duration // of a request or an answer, at most
		timeout           time.Duration
		contenders, turns int
		limit             time.Duration // of a turn, on average
	}{
		"woken":   {false, time.Millisecond, DefaultMemberTimeout, 8, 10, 100 * time.Millisecond},
		"polling": {true, time.Millisecond, DefaultMemberTimeout, 8, 10, 100 * time.Millisecond},
		"far":     {false, 400 * time.Millisecond, time.Second, 16, 8, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(5)
				for _, m := range all {
					m.delay = func() time.Duration { return rand.N(c.travel) }
				}
				var inside atomic.Int32
				var last atomic.Uint64
				var wg sync.WaitGroup
				start := time.Now()
				for range c.contenders {
					var store driver.Store = startWith(t, all, &Options{MemberTimeout: c.timeout})
					if c.polls {
						store = struct{ driver.Store }{store}
					}
					client := dlock.New(store, &dlock.Options{RequestTimeout: time.Minute})
					wg.Go(func() {
						defer client.Close()
						for range c.turns {
							lease, err := client.Lock(t.Context(), "x", dlock.WithWait(time.Hour))
							if err != nil {
								t.Errorf("not locked after %v: %v", time.Since(start), err)
								return
							}
							if inside.Add(1) != 1 {
								t.Error("two contenders hold the lock")
							}
							if before := last.Swap(lease.Token()); before >= lease.Token() {
								t.Errorf("token %d after token %d", lease.Token(), before)
							}
							time.Sleep(time.Millisecond)
							inside.Add(-1)
							if err := lease.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				asked := 0
				for _, m := range all {
					asked += m.count("Acquire")
				}
				turns := c.contenders * c.turns
				turn := time.Since(start) / time.Duration(turns)
				t.Logf("a turn of 1ms takes %v, with %.1f calls of Acquire a member", turn, float64(asked)/float64(len(all)*turns))
				if turn > c.limit {
					t.Errorf("a turn takes %v on average, more than %v", turn, c.limit)
				}
			})
		})
	}
}

// TestSplitVoteIsRepeatedAfterRandomPause: after a split vote the HeldError names no holder, and
// its Remaining is a random time that grows with the split votes in a row.
func TestSplitVoteIsRepeatedAfterRandomPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, splitMembers(t))
		settle(t, s)
		req := request("x", time.Minute)
		var delays []time.Duration
		for range 20 {
			held := refusal(t, s, req)
			if held.Name != "x" || held.Token != 0 || held.Holder != (driver.Holder{}) {
				t.Errorf("no holder has a majority, but the error is %+v", held)
			}
			delays = append(delays, held.Remaining)
			time.Sleep(held.Remaining)
		}
		if first := delays[0]; first <= 0 || first > 20*time.Millisecond {
			t.Errorf("the first pause is %v", first)
		}
		different := make(map[time.Duration]bool)
		var late time.Duration
		for _, d := range delays[10:] {
			different[d] = true
			late += d / 10
		}
		if late < 40*time.Millisecond || late > time.Second || len(different) < 5 {
			t.Errorf("the pauses after split votes in a row are %v; want long and random ones", delays)
		}
	})
}

// TestWaitersDoNotWakeEachOther: a holder has three members of five. Each attempt of a waiter
// gets the other two and gives them back, which does not wake the other waiters.
func TestWaitersDoNotWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		setDelay(all, 100*time.Microsecond)
		all[3].set(gone)
		all[4].set(gone)
		holder := start(t, all)
		grant := mustAcquire(t, holder, request("x", 20*time.Second))
		all[3].set(up)
		all[4].set(up)
		var wg sync.WaitGroup
		for range 4 {
			client := dlock.New(start(t, all), &dlock.Options{TTL: 20 * time.Second})
			wg.Go(func() {
				defer client.Close()
				if err := client.Do(t.Context(), "x", noop); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if n := all[4].count("Acquire"); n > 100 {
			t.Errorf("four waiters asked a member %d times in 10s", n)
		}
		mustRelease(t, holder, grant)
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > time.Second {
			t.Errorf("four waiters needed %v after the release", took)
		}
	})
}

// TestLockTakesOneRoundTrip: although the members take their tokens from different clocks, a lock
// takes one round trip.
func TestLockTakesOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		for i, c := range all {
			skew := time.Duration(i) * 7 * time.Millisecond
			c.server.clock = func() uint64 { return uint64(time.Now().Add(skew).UnixMicro()) }
			c.delay = func() time.Duration { return 100*time.Microsecond + rand.N(300*time.Microsecond) }
		}
		clients := []*Store{start(t, all), start(t, all), start(t, all)}
		raised := func() (n int) {
			for _, c := range all {
				n += c.count("RaiseToken")
			}
			return n
		}
		const locks = 300
		before := 0
		for i := range 2 * locks {
			if i == locks {
				before = raised()
			}
			s := clients[rand.N(len(clients))]
			grant := mustAcquire(t, s, request(fmt.Sprint(rand.N(10)), time.Minute))
			mustRelease(t, s, grant)
			time.Sleep(rand.N(10 * time.Millisecond))
		}
		t.Logf("%d tokens were raised for the first %d locks, %d for the next", before, locks, raised()-before)
		// None, or up to 40 by chance; and a thousand without the guess.
		if n := raised() - before; n > locks/2 {
			t.Errorf("%d tokens had to be raised for %d locks", n, locks)
		}
		// Tokens run ahead of the clocks by the longest travel time only.
		token := mustAcquire(t, clients[0], request("last", time.Minute)).Token
		if ahead := int64(token) - time.Now().Add(28*time.Millisecond).UnixMicro(); ahead > 10_000 {
			t.Errorf("tokens are %dus ahead of the fastest clock", ahead)
		}
	})
}

func noop(context.Context) error { return nil }
