package redlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestReleaseIsRepeatedUntilMemberAnswers: a member that is out of reach when a lock is released
// gets the release later.
func TestReleaseIsRepeatedUntilMemberAnswers(t *testing.T) {
	for name, f := range map[string]fault{"gone": gone, "mute": mute} {
		for _, failed := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%d %s", failed, name), func(t *testing.T) {
				bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
					grant := mustAcquire(t, s, request("x", time.Hour))
					synctest.Wait()
					for _, c := range all[:failed] {
						c.set(f)
					}
					if err := s.Release(t.Context(), grant); (err == nil) != (failed <= 2) {
						t.Errorf("Release with %d of 5 members out of reach: %v", failed, err)
					}
					time.Sleep(time.Minute)
					for _, c := range all[:failed] {
						c.set(up)
					}
					time.Sleep(10 * time.Second)
					checkFree(t, all, "10 s after all members were back")
				})
			})
		}
	}
}

// TestFailedAttemptIsUndoneWhenMemberReturns: what a failed attempt may have got is released as
// soon as the members can be reached.
func TestFailedAttemptIsUndoneWhenMemberReturns(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
		settle(t, s)
		for _, c := range all[2:] {
			c.set(lost) // the members grant the lock
		}
		req := request("x", time.Hour)
		done := make(chan error, 1)
		go func() {
			_, err := s.Acquire(t.Context(), req)
			done <- err
		}()
		synctest.Wait()
		for _, c := range all[2:] {
			c.set(gone) // and cannot be reached to release it
		}
		if err := <-done; !errors.Is(err, driver.ErrUnreachable) {
			t.Fatalf("Acquire with three answers lost: %v", err)
		}
		time.Sleep(time.Minute)
		for _, c := range all[2:] {
			c.set(up)
		}
		time.Sleep(10 * time.Second)
		checkFree(t, all, "10 s after all members were back")
	})
}

// TestDeadMemberIsNotFlooded: a dead member gets a call now and then, however many releases it
// missed, and none after ten minutes, although the locks have not expired then.
func TestDeadMemberIsNotFlooded(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		settle(t, s)
		all[0].set(gone)
		for i := range 1000 {
			mustRelease(t, s, mustAcquire(t, s, request(fmt.Sprint(i), time.Hour)))
		}
		before := all[0].count("Release")
		time.Sleep(5 * time.Minute)
		if n := all[0].count("Release") - before; n < 10 || n > 200 {
			t.Errorf("a member that is gone got %d calls within 5 minutes; want one now and then", n)
		}
		time.Sleep(6 * time.Minute)
		before = all[0].count("Release")
		time.Sleep(time.Hour)
		if n := all[0].count("Release") - before; n != 0 {
			t.Errorf("a member that is gone got %d calls more than ten minutes after the releases", n)
		}
	})
}

// TestCloseReportsUnreleasedLocks: Close repeats the releases once more, and reports how many
// locks contenders have to wait for. A failed minority makes no contender wait.
func TestCloseReportsUnreleasedLocks(t *testing.T) {
	for failed, want := range map[int]string{0: "", 2: "", 3: "2 locks"} {
		t.Run(fmt.Sprint(failed), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
				grants := []driver.Grant{mustAcquire(t, s, request("x", time.Hour)), mustAcquire(t, s, request("y", time.Hour))}
				synctest.Wait()
				for _, c := range all[:failed] {
					c.set(mute)
				}
				for _, grant := range grants {
					_ = s.Release(t.Context(), grant)
				}
				start := time.Now()
				switch err := s.Close(); {
				case want == "" && err != nil, want != "" && (!errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), want)):
					t.Errorf("Close with %d of 5 members out of reach: %v; want %q", failed, err, want)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
	t.Run("back", func(t *testing.T) {
		bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
			grant := mustAcquire(t, s, request("x", time.Hour))
			synctest.Wait()
			for _, c := range all {
				c.set(gone)
			}
			if err := s.Release(t.Context(), grant); !errors.Is(err, driver.ErrUnreachable) {
				t.Errorf("Release without members: %v", err)
			}
			for _, c := range all {
				c.set(up)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			checkFree(t, all, "after Close")
		})
	})
}

// TestCloseCountsAMemberOnce: a member misses two releases of the same lock, which a majority does
// not have any more. No contender has to wait for the lock.
func TestCloseCountsAMemberOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		grant := mustAcquire(t, s, request("x", time.Hour))
		synctest.Wait()
		all[0].restartEmpty()
		all[1].restartEmpty()
		all[2].set(gone)
		if err := errors.Join(s.Renew(t.Context(), []driver.Grant{grant})...); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("Renew of a lock that a majority lost: %v", err)
		}
		synctest.Wait() // the renewal has released what was left
		if err := s.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
			t.Fatalf("Release of a lock that a majority lost: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close, with a minority that missed releases: %v", err)
		}
	})
}

// TestCloseIsBounded: Close does not wait until a slow member has got all calls that it missed. No
// lock is acquired again after Close has begun.
func TestCloseIsBounded(t *testing.T) {
	const locks = 1000
	for name, miss := range map[string]func(t *testing.T, s *Store, c *fakeMember, grants []driver.Grant){
		"releases": func(t *testing.T, s *Store, c *fakeMember, grants []driver.Grant) {
			c.set(gone)
			for _, grant := range grants {
				mustRelease(t, s, grant)
			}
			c.set(up)
		},
		"repairs": func(t *testing.T, s *Store, c *fakeMember, grants []driver.Grant) {
			c.restartEmpty()
			mustRenew(t, s, grants...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
				var grants []driver.Grant
				for i := range locks {
					grants = append(grants, mustAcquire(t, s, request(fmt.Sprint(i), time.Hour)))
				}
				synctest.Wait()
				miss(t, s, all[2], grants)
				all[2].slowDown(20 * time.Millisecond)
				time.Sleep(time.Second) // the calls have begun
				start := time.Now()
				if err := s.Close(); err != nil {
					t.Errorf("Close, with a minority that missed calls: %v", err)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

// TestRepairsGoOnAfterARefusedOne: a member refuses one lock, because another owner has it
// there. The locks behind it are repaired.
func TestRepairsGoOnAfterARefusedOne(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		var grants []driver.Grant
		for _, name := range []string{"a", "b", "c"} {
			grants = append(grants, mustAcquire(t, s, request(name, time.Hour)))
		}
		synctest.Wait()
		all[2].restartEmpty()
		all[2].take(t, request("a", time.Hour), 0)
		for range 2 {
			mustRenew(t, s, grants...)
			time.Sleep(time.Second)
		}
		if left := all[2].locks(); len(left) != 3 {
			t.Errorf("the member has %q; want a, which it refuses, and b and c", left)
		}
	})
}

// TestExpiredLocksAreNotRepaired: a slow member has not got all repairs when the holder stops
// renewing. It does not grant locks that have expired.
func TestExpiredLocksAreNotRepaired(t *testing.T) {
	bubble(t, 3, func(t *testing.T, all []*fakeMember, s *Store) {
		var grants []driver.Grant
		for i := range 200 {
			grants = append(grants, mustAcquire(t, s, request(fmt.Sprint(i), time.Second)))
		}
		synctest.Wait()
		all[2].restartEmpty()
		mustRenew(t, s, grants...)
		all[2].slowDown(20 * time.Millisecond)
		time.Sleep(4 * time.Second)
		checkFree(t, all, "3 s after the locks expired")
	})
}
