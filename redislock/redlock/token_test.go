package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// history is a random history: clients come and go, members are slow, cut off, or restarted
// empty as long as a majority still knows the last token of every name.
type history struct {
	seed   uint64
	grants int
}

// TestTokensRise: every grant has larger tokens than the grants before its request.
func TestTokensRise(t *testing.T) {
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			err := history{seed: seed, grants: 60}.run(t.Context(), func(members []*fakeMember) *Store { return start(t, members) })
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

const seeds = 40

func (h history) run(ctx context.Context, open func([]*fakeMember) *Store) error {
	random := rand.New(rand.NewPCG(h.seed, 0))
	all := fakeMembers(3 + 2*random.IntN(2))
	majority := len(all)/2 + 1
	for _, c := range all {
		slow := time.Microsecond + time.Duration(random.Int64N(int64(3*time.Millisecond)))
		c.delay = func() time.Duration { return rand.N(slow) }
	}
	names := []string{"x", "y"}
	last := make(map[string]uint64)
	client := open(all)
	for granted := 0; granted < h.grants; {
		if random.IntN(4) > 0 {
			client = open(all) // without any knowledge
		}
		h.disturb(random, all, majority, last)
		name := names[random.IntN(len(names))]
		req := request(name, 2*time.Second)
		grant, err := client.Acquire(ctx, req)
		if errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrUnreachable) {
			if err := backoff.Sleep(ctx, rand.N(3*time.Second)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if grant.Token <= last[name] {
			return fmt.Errorf("token %d of %q was granted after token %d", grant.Token, name, last[name])
		}
		last[name] = lastToken(grant.Token)
		if know := h.know(all, name, last[name]); know < majority {
			return fmt.Errorf("%d of %d members have set %d to %d aside", know, len(all), grant.Token, last[name])
		}
		if again, err := client.Acquire(ctx, req); err == nil && again.Token != grant.Token {
			return fmt.Errorf("token %d was granted, and then %d", grant.Token, again.Token)
		}
		granted++
		if random.IntN(3) > 0 {
			if err := client.Release(ctx, grant); err != nil && !errors.Is(err, driver.ErrUnreachable) && !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
		}
	}
	return nil
}

// disturb changes which members can be reached, and restarts members.
func (h history) disturb(random *rand.Rand, all []*fakeMember, majority int, last map[string]uint64) {
	for _, i := range random.Perm(len(all))[:random.IntN(len(all)+1-majority)+random.IntN(2)] {
		all[i].set([]fault{up, gone, mute, lost}[random.IntN(4)])
	}
	for range random.IntN(3) {
		all[random.IntN(len(all))].set(up)
	}
	if i := random.IntN(len(all)); random.IntN(3) == 0 {
		for name, token := range last {
			if h.know(slices.Concat(all[:i], all[i+1:]), name, token) < majority {
				return
			}
		}
		all[i].restartEmpty()
	}
}

// know counts the members that know a token of a name.
func (h history) know(members []*fakeMember, name string, token uint64) (n int) {
	for _, c := range members {
		if c.knownToken(name) >= token {
			n++
		}
	}
	return n
}

// neverRaises is a member that does not answer RaiseToken.
type neverRaises struct{ *fakeMember }

func (neverRaises) RaiseToken(ctx context.Context, _ driver.Grant, _ uint64) (uint64, error) {
	return 0, hang(ctx)
}

// TestTokenNeedsMajority: a token is given out only when a majority has stored it. Otherwise
// another majority may give out a smaller one.
func TestTokenNeedsMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		all[0].draw(t, "x", 1_000_000)
		all[2].set(gone)
		s := start(t, []master.Store{all[0], neverRaises{all[1]}, all[2]})
		if grant, err := s.Acquire(t.Context(), request("x", time.Minute)); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("token %d was given out, but only one member of three has stored it: %v", grant.Token, err)
		}
	})
}

// slowAndNeverRaises is the same, and answers attempts later than others do, so that it is in no first majority.
type slowAndNeverRaises struct{ neverRaises }

func (s slowAndNeverRaises) Acquire(ctx context.Context, req driver.Request, floor uint64) (uint64, error) {
	time.Sleep(time.Millisecond)
	return s.fakeMember.Acquire(ctx, req, floor)
}

// losesLock is a member that has lost a lock when its token is to be raised.
type losesLock struct{ *fakeMember }

func (losesLock) RaiseToken(context.Context, driver.Grant, uint64) (uint64, error) {
	return 0, driver.ErrNotHeld
}

// TestAnswerOfAMinorityIsNotThatOfAll: what one member answers proves nothing about the others, which may have
// granted the lock.
func TestAnswerOfAMinorityIsNotThatOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		all[0].draw(t, "x", 1_000_000)
		s := start(t, []master.Store{all[0], losesLock{all[1]}, slowAndNeverRaises{neverRaises{all[2]}}})
		_, err := s.Acquire(t.Context(), request("x", time.Minute))
		if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) || driver.Unchanged(err) {
			t.Errorf("one member has the token, one lost the lock, one does not answer: want ErrUnreachable and not ErrNotHeld, got: %v", err)
		}
	})
}

// TestLateMemberReplacesOneThatDied: the first majority cannot agree on a token, because one of
// its members dies. A late member has granted a larger one, and gets that of the vote.
func TestLateMemberReplacesOneThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		for i, floor := range []uint64{1_000, 0, 1_000_000} {
			all[i].draw(t, "x", floor)
		}
		s := start(t, []master.Store{all[0], neverRaises{all[1]}, all[2]})
		setDelay(all[2:], 10*time.Millisecond)
		grant := mustAcquire(t, s, request("x", time.Minute))
		for _, i := range []int{0, 2} {
			if known := all[i].knownToken("x"); known < lastToken(grant.Token) {
				t.Errorf("member %d knows token %d; want %d, the last that was granted", i+1, known, lastToken(grant.Token))
			}
		}
	})
}

// TestLateMemberGetsTheToken: a member that grants the lock with another token after the vote is decided gets that of
// the majority at once.
func TestLateMemberGetsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		all[2].draw(t, "x", 1_000_000)
		s := start(t, all)
		settle(t, s)
		setDelay(all[2:], 10*time.Millisecond)
		grant := mustAcquire(t, s, request("x", time.Minute))
		time.Sleep(time.Second)
		if locks := all[2].at().list(t.Context(), "x"); len(locks) != 1 || locks[0].Token != grant.Token {
			t.Errorf("the late member has %+v; want the token %d", locks, grant.Token)
		}
	})
}

// TestStepIsSetAside: a majority sets aside all tokens of a grant, also where they are raised.
func TestStepIsSetAside(t *testing.T) {
	for name, floors := range map[string][2]uint64{"alike": {}, "raised": {100_000, 50}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(3)
				for i, floor := range floors {
					all[i].draw(t, "x", floor)
				}
				all[2].set(gone)
				s := start(t, all)
				grant := mustAcquire(t, s, request("x", time.Minute))
				for i, c := range all[:2] {
					if known := c.knownToken("x"); known < lastToken(grant.Token) {
						t.Errorf("member %d knows token %d; %d to %d were granted", i+1, known, grant.Token, lastToken(grant.Token))
					}
				}
				mustRelease(t, s, grant)
				if next := mustAcquire(t, start(t, all), request("x", time.Minute)); next.Token <= lastToken(grant.Token) {
					t.Errorf("token %d was granted after %d to %d", next.Token, grant.Token, lastToken(grant.Token))
				}
			})
		})
	}
}

// losesAnswer is a member that carries out the next attempt, and whose answer to it is lost.
type losesAnswer struct {
	*fakeMember
	next *atomic.Bool
}

func (l losesAnswer) Acquire(ctx context.Context, req driver.Request, floor uint64) (uint64, error) {
	token, err := l.fakeMember.Acquire(ctx, req, floor)
	if l.next.CompareAndSwap(true, false) {
		return 0, hang(ctx)
	}
	return token, err
}

// TestTokenOfAnUnansweredRepair: a member that has forgotten the lock draws a larger token when it gets
// the lock again, and its answer is lost. The next renewal gives it the token of the others.
func TestTokenOfAnUnansweredRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		third := losesAnswer{all[2], new(atomic.Bool)}
		s := start(t, []master.Store{all[0], all[1], third})
		settle(t, s)
		grant := mustAcquire(t, s, request("x", time.Minute))
		synctest.Wait()
		all[2].restartEmpty()
		all[2].server.clock = func() uint64 { return grant.Token + 1000 }
		third.next.Store(true)
		for range 2 { // the first finds that the lock was lost there
			mustRenew(t, s, grant)
			time.Sleep(time.Second)
		}
		all[1].set(gone)
		info, found, err := s.Find(t.Context(), "x")
		if err != nil || !found || info.Token != grant.Token {
			t.Errorf("Find of the lock with token %d: %+v, %v, %v", grant.Token, info, found, err)
		}
	})
}
