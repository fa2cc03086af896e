package attempts_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
)

// server keeps the locks of owners, and counts releases.
type server struct {
	mu     sync.Mutex
	held   map[driver.Owner]bool
	calls  int
	silent bool
	locked string // the name for which the server does not answer
}

func (s *server) release(ctx context.Context, name string, owner driver.Owner) error {
	s.mu.Lock()
	s.calls++
	silent, held := s.silent || name == s.locked, s.held[owner]
	if !silent {
		delete(s.held, owner)
	}
	s.mu.Unlock()
	switch {
	case silent:
		<-ctx.Done()
		return driver.ErrUnreachable
	case !held:
		return driver.ErrNotHeld
	}
	return nil
}

func (s *server) acquire(owner driver.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[owner] = true
}

func (s *server) holds(owner driver.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[owner]
}

func (s *server) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *server) mute(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

func run(t *testing.T, test func(t *testing.T, s *server, log *attempts.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{held: make(map[driver.Owner]bool)}
		log := attempts.New(s.release)
		test(t, s, log)
		_ = log.Close()
		synctest.Wait()
	})
}

func settle(t *testing.T, log *attempts.Log, owner driver.Owner) {
	t.Helper()
	settleAs(t, log, driver.Grant{Owner: owner})
}

// settleGrant is settle for an owner that has a grant.
func settleGrant(t *testing.T, log *attempts.Log, owner driver.Owner) {
	t.Helper()
	settleAs(t, log, driver.Grant{Owner: owner, Token: 1})
}

func settleAs(t *testing.T, log *attempts.Log, grant driver.Grant) {
	t.Helper()
	released, err := log.Settle(t.Context(), grant)
	if err != nil {
		t.Fatal("Settle:", err)
	}
	released()
}

func TestSettleWaitsForAcquisitionsUnderWay(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner, began := driver.NewOwner(), time.Now()
		first, second := log.Leave("a", owner), log.Leave("a", owner)
		time.AfterFunc(time.Second, func() { first(true) })
		time.AfterFunc(2*time.Second, func() { second(true) })
		settle(t, log, driver.NewOwner()) // another owner's release waits for nothing
		if time.Since(began) != 0 {
			t.Error("the release of another owner waited")
		}
		settle(t, log, owner)
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("Settle returned after %v; want 2s, when the last acquisition ended", waited)
		}
		time.Sleep(time.Hour)
		if s.called() != 0 {
			t.Errorf("%d calls after all acquisitions were answered; the release itself undoes them", s.called())
		}
	})
}

func TestAcquisitionThatOutlivesSettleIsUndone(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		ended := log.Leave("a", owner)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := log.Settle(ctx, driver.Grant{Owner: owner})
		if !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Settle = %v; want ErrUnreachable and the context's error", err)
		}
		s.acquire(owner)
		ended(true)
		synctest.Wait()
		if s.holds(owner) {
			t.Error("the lock is still held after its acquisition was answered")
		}
		if time.Sleep(time.Hour); s.called() != 1 {
			t.Errorf("%d calls; want one, since the outcome is known", s.called())
		}
	})
}

func TestLostAcquisitionIsUndoneWhenItArrives(t *testing.T) {
	for _, late := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 1200 * time.Millisecond, 20 * time.Second, 50 * time.Second} {
		run(t, func(t *testing.T, s *server, log *attempts.Log) {
			owner := driver.NewOwner()
			log.Unanswered("a", owner)
			settle(t, log, owner)
			time.Sleep(late)
			s.acquire(owner)
			time.Sleep(min(2*late+100*time.Millisecond, 7*time.Second))
			if s.holds(owner) {
				t.Errorf("an acquisition that was %v late is still held", late)
			}
			if time.Sleep(time.Hour); s.called() > 30 {
				t.Errorf("%d calls for one acquisition", s.called())
			}
		})
	}
}

func TestNothingIsUndoneBeforeTheRelease(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		log.Unanswered("a", owner)
		s.acquire(owner) // by a second attempt, which was answered
		time.Sleep(time.Hour)
		if !s.holds(owner) {
			t.Error("the lock was taken from an owner that did not release it")
		}
		settle(t, log, owner)
		s.mute(false)
		if time.Sleep(time.Second); s.holds(owner) {
			t.Error("the lost attempt was not undone after the release")
		}
	})
}

// A slow release finds its lock: the Log undoes nothing before the release has ended.
func TestNothingIsUndoneDuringARelease(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		log.Unanswered("a", owner)
		s.acquire(owner) // by a second attempt, which was answered
		first, err := log.Settle(t.Context(), driver.Grant{Owner: owner, Token: 1})
		if err != nil {
			t.Fatal("Settle:", err)
		}
		first() // the first release had no answer, and is repeated before anything is undone
		second, err := log.Settle(t.Context(), driver.Grant{Owner: owner, Token: 1})
		if err != nil {
			t.Fatal("Settle:", err)
		}
		if time.Sleep(time.Minute); !s.holds(owner) {
			t.Error("the lock was undone while its release was under way, which will report a loss")
		}
		second()
		if time.Sleep(time.Second); s.holds(owner) {
			t.Error("the lost attempt was not undone after the release")
		}
	})
}

func TestUndoingOutlastsAnOutage(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		s.mute(true)
		log.Unanswered("a", owner)
		settle(t, log, owner)
		time.Sleep(3 * time.Minute)
		s.mute(false)
		s.acquire(owner) // the server goes on with what it had received
		if time.Sleep(2 * 7 * time.Second); s.holds(owner) {
			t.Error("the acquisition that the server carried out after its outage is still held")
		}
	})
}

// The first answer after an outage proves nothing about attempts that the server, or the network, kept.
func TestUndoingGoesOnAfterAnOutage(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		s.mute(true)
		log.Unanswered("a", owner)
		settle(t, log, owner)
		time.Sleep(3 * time.Minute)
		s.mute(false)
		time.Sleep(12 * time.Second) // an undo was answered
		s.acquire(owner)
		if time.Sleep(time.Minute); s.holds(owner) {
			t.Error("an acquisition that was carried out 12s after the end of an outage is still held a minute later")
		}
	})
}

func TestCloseUndoesOnceMore(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner := driver.NewOwner()
		log.Unanswered("a", owner)
		settle(t, log, owner)
		s.acquire(owner)
		if err := log.Close(); err != nil {
			t.Error("Close:", err)
		}
		if s.holds(owner) {
			t.Error("held after Close")
		}
		calls := s.called()
		log.Unanswered("a", owner)
		settle(t, log, owner)
		if time.Sleep(time.Hour); s.called() != calls {
			t.Error("a closed log went on undoing")
		}
	})
}

func TestCloseReportsUnansweredOwners(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		s.mute(true)
		for range 3 {
			owner := driver.NewOwner()
			log.Unanswered("a", owner)
			settle(t, log, owner)
		}
		began := time.Now()
		if err := log.Close(); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Close = %v; want ErrUnreachable", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		s.mute(true)
		for range 20_000 {
			log.Unanswered("a", driver.NewOwner())
		}
		owner := driver.NewOwner()
		log.Unanswered("a", owner)
		settle(t, log, owner)
		if time.Sleep(time.Second); s.called() != 0 {
			t.Error("a record beyond the limit was kept")
		}
		time.Sleep(2 * time.Minute) // the records that were never released are old now
		log.Unanswered("a", owner)
		settle(t, log, owner)
		if time.Sleep(time.Second); s.called() == 0 {
			t.Error("old records were not forgotten")
		}
	})
}

// An attempt whose owner was not released within a minute cannot arrive any more.
func TestOldAttemptsAreForgotten(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		old := driver.NewOwner()
		log.Unanswered("a", old)
		time.Sleep(2 * time.Minute)
		log.Unanswered("b", driver.NewOwner())
		settle(t, log, old)
		if time.Sleep(time.Minute); s.called() != 0 {
			t.Errorf("%d calls for an attempt that cannot arrive any more", s.called())
		}
	})
}

func TestReleaseOfGrantedLockDoesNotWait(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		owner, began := driver.NewOwner(), time.Now()
		ended := log.Leave("a", owner)
		settleGrant(t, log, owner)
		if time.Since(began) != 0 {
			t.Error("the release of a grant waited for an acquisition")
		}
		time.Sleep(time.Second)
		s.acquire(owner)
		ended(true)
		synctest.Wait()
		if s.holds(owner) {
			t.Error("the lock is still held after its acquisition was answered")
		}
		log.Unanswered("a", owner)
		settleGrant(t, log, owner)
		s.acquire(owner)
		if time.Sleep(time.Minute); s.holds(owner) {
			t.Error("the lock of an acquisition that lost its answer is still held")
		}
	})
}

// Many acquisitions of a name whose row is locked do not delay the undoing of another name.
func TestLockedNameDoesNotDelayOthers(t *testing.T) {
	run(t, func(t *testing.T, s *server, log *attempts.Log) {
		s.locked = "locked"
		for range 20 {
			owner := driver.NewOwner()
			log.Unanswered("locked", owner)
			settle(t, log, owner)
		}
		time.Sleep(time.Second) // all of them are due
		late := driver.NewOwner()
		log.Unanswered("free", late)
		settle(t, log, late)
		s.acquire(late)
		time.Sleep(15 * time.Second)
		if s.holds(late) {
			t.Error("15s after it was carried out, an acquisition of a name that is not locked is not undone")
		}
	})
}
