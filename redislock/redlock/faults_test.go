package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
)

// setDelay makes calls to the members take that long in each direction.
func setDelay(all []*fakeMember, delay time.Duration) {
	for _, c := range all {
		c.delay = func() time.Duration { return delay }
	}
}

// TestFailedMinorityCostsNoTime: with two members of five out of reach, in whatever way, a lock
// takes as long as with all of them.
func TestFailedMinorityCostsNoTime(t *testing.T) {
	for name, f := range map[string]fault{"gone": gone, "mute": mute, "lost": lost} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(5)
				setDelay(all, time.Millisecond)
				s := start(t, all)
				settle(t, s)
				all[0].set(f)
				all[3].set(f)
				for range 3 {
					start := time.Now()
					grant := mustAcquire(t, s, request("x", 10*time.Second))
					if took := time.Since(start); took != 2*time.Millisecond {
						t.Errorf("Acquire took %v, a round trip is 2ms", took)
					}
					mustRenew(t, s, grant)
					mustRelease(t, s, grant)
					if took := time.Since(start); took != 6*time.Millisecond {
						t.Errorf("Acquire, Renew and Release took %v, a round trip is 2ms", took)
					}
				}
			})
		})
	}
}

// TestFailedMajorityGrantsNothing: without a majority Acquire fails within the MemberTimeout,
// whatever the TTL, and gives back what two members granted.
func TestFailedMajorityGrantsNothing(t *testing.T) {
	for name, f := range map[string]fault{"gone": gone, "mute": mute} {
		for _, ttl := range []time.Duration{time.Second, time.Hour} {
			t.Run(name+" "+ttl.String(), func(t *testing.T) {
				bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
					settle(t, s)
					for _, c := range all[:3] {
						c.set(f)
					}
					start := time.Now()
					_, err := s.Acquire(t.Context(), request("x", ttl))
					if took := time.Since(start); took > DefaultMemberTimeout {
						t.Errorf("Acquire took %v", took)
					}
					if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) || !strings.Contains(err.Error(), "member 1") || strings.Contains(err.Error(), "\n") {
						t.Errorf("want one line with ErrUnreachable that names member 1, got: %v", err)
					}
					synctest.Wait()
					checkFree(t, all, "in the end")
				})
			})
		}
	}
}

// calls are those about a lock that is held. Each has an outcome of its own if a majority does not answer.
var calls = map[string]func(context.Context, *Store, driver.Grant) error{
	"Renew": func(ctx context.Context, s *Store, grant driver.Grant) error {
		return s.Renew(ctx, []driver.Grant{grant})[0]
	},
	"Release": func(ctx context.Context, s *Store, grant driver.Grant) error { return s.Release(ctx, grant) },
	"Break": func(ctx context.Context, s *Store, grant driver.Grant) error {
		return s.Break(ctx, grant.Name, grant.Token)
	},
	"Find": func(ctx context.Context, s *Store, grant driver.Grant) error {
		_, _, err := s.Find(ctx, grant.Name)
		return err
	},
	"Acquire": func(ctx context.Context, s *Store, _ driver.Grant) error {
		_, err := s.Acquire(ctx, request("y", time.Minute))
		return err
	},
}

// TestUndecidedMembersMakeOutcomeUnknown: two members renewed or released, two held nothing, and
// one does not answer. The outcome is neither success nor ErrNotHeld.
func TestUndecidedMembersMakeOutcomeUnknown(t *testing.T) {
	for _, name := range []string{"Renew", "Release", "Break"} {
		for how, f := range map[string]fault{"gone": gone, "mute": mute} {
			t.Run(name+" "+how, func(t *testing.T) {
				bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
					grant := mustAcquire(t, s, request("x", time.Minute))
					synctest.Wait()
					all[0].restartEmpty()
					all[1].restartEmpty()
					all[2].set(f)
					if err := calls[name](t.Context(), s, grant); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
						t.Errorf("want ErrUnreachable and not ErrNotHeld, got: %v", err)
					}
				})
			})
		}
	}
}

// TestLeaseSurvivesFailingMinority: a lease goes on while members fail one after another and
// come back empty.
func TestLeaseSurvivesFailingMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		setDelay(all, 100*time.Microsecond)
		client := dlock.New(start(t, all), &dlock.Options{TTL: 3 * time.Second})
		lease, err := client.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			c := all[i%5]
			c.set([]fault{gone, mute, lost}[i%3])
			time.Sleep(2 * time.Second)
			c.restartEmpty()
			c.set(up)
			time.Sleep(3 * time.Second) // a renewal finds and repairs it
			if err := lease.Context().Err(); err != nil {
				t.Fatalf("after %d failures: %v", i+1, context.Cause(lease.Context()))
			}
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		client.Close()
	})
}

// recorder is a member that remembers the owners that it was asked for and that were released.
type recorder struct {
	*fakeMember
	mu       *sync.Mutex
	asked    map[driver.Owner]bool
	released map[driver.Owner]bool
}

func (w recorder) Acquire(ctx context.Context, req driver.Request, floor uint64) (uint64, error) {
	w.mu.Lock()
	w.asked[req.Owner] = true
	w.mu.Unlock()
	return w.fakeMember.Acquire(ctx, req, floor)
}

func (w recorder) Release(ctx context.Context, grant driver.Grant) error {
	w.mu.Lock()
	w.released[grant.Owner] = true
	w.mu.Unlock()
	return w.fakeMember.Release(ctx, grant)
}

// TestEveryAttemptIsReleased: a member that does not answer gets a Release for every attempt, so
// that its store can undo late ones. That includes attempts that lost the vote, attempts
// whose caller left, and a member with so many waiting calls that it gets no new attempts.
func TestEveryAttemptIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		setDelay(all, time.Millisecond)
		w := recorder{all[4], new(sync.Mutex), make(map[driver.Owner]bool), make(map[driver.Owner]bool)}
		s := start(t, []master.Store{all[0], all[1], all[2], all[3], w})
		settle(t, s)
		held := mustAcquire(t, s, request("held", time.Hour))
		all[4].set(mute)
		const attempts = 2000
		var work sync.WaitGroup
		for i := range attempts {
			work.Go(func() {
				name, ctx := fmt.Sprint(i), t.Context()
				switch i % 4 {
				case 0:
					name = held.Name
				case 1: // the caller leaves before any member has answered
					short, cancel := context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
					ctx = short
				}
				grant, err := s.Acquire(ctx, request(name, time.Minute))
				if err != nil {
					return
				}
				if err := s.Release(t.Context(), grant); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond / 2)
		}
		work.Wait()
		mustRelease(t, s, held)
		if err := s.Close(); err != nil { // it waits for the releases
			t.Error(err)
		}
		left := 0
		for owner := range w.asked {
			if !w.released[owner] {
				left++
			}
		}
		if left > 0 {
			t.Errorf("%d of %d attempts at the member that does not answer were never released there", left, len(w.asked))
		}
		if len(w.asked) == attempts {
			t.Error("the member got every attempt, although it answered none of them")
		}
	})
}

// TestInterruptedCallsAreUnreachable: a call whose context ends before a majority has answered
// wraps ErrUnreachable and the cause.
func TestInterruptedCallsAreUnreachable(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
				grant := mustAcquire(t, s, request("x", time.Minute))
				synctest.Wait()
				for _, c := range all {
					c.set(mute)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if err := call(ctx, s, grant); !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("want ErrUnreachable and the cause, got: %v", err)
				}
			})
		})
	}
}

// TestHandleOfAnotherRedlockIsIgnored: a grant of a Redlock with more or fewer members is not held.
func TestHandleOfAnotherRedlockIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three, five := start(t, fakeMembers(3)), start(t, fakeMembers(5))
		for _, s := range []*Store{three, five} {
			for _, from := range []*Store{three, five} {
				if s == from {
					continue
				}
				grant := mustAcquire(t, from, request("x", time.Minute))
				if errs := s.Renew(t.Context(), []driver.Grant{grant}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
					t.Errorf("Renew: %v; want ErrNotHeld", errs)
				}
				if err := s.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("Release: %v; want ErrNotHeld", err)
				}
				synctest.Wait()
			}
		}
	})
}
