package quorum_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
)

// TestShorterTTLDoesNotShortenLock: a renewal promises the TTL of its grant, also if the owner
// has asked again for a shorter one.
func TestShorterTTLDoesNotShortenLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s, contender := open(t, all), open(t, all)
		req := request("x", 10*time.Second)
		grant := mustAcquire(t, s, req)
		req.TTL = time.Second
		if again := mustAcquire(t, s, req); again.Token != grant.Token || again.TTL > time.Second {
			t.Errorf("asking again for a second: %+v after %+v", again, grant)
		}
		for range 2 {
			time.Sleep(grant.TTL - time.Millisecond)
			if _, err := contender.Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("the lock ended before the promised %v: %v", grant.TTL, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}

// TestAnswersAfterTTLGrantNothing: answers that take longer than the lock lasts grant nothing.
func TestAnswersAfterTTLGrantNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s := open(t, all)
		settle(t, s)
		setDelay(all, 15*time.Millisecond)
		if grant, err := s.Acquire(t.Context(), request("x", 30*time.Millisecond)); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Acquire for 30 ms with answers after 30 ms: %+v, %v; want ErrUnreachable", grant, err)
		}
		synctest.Wait()
		checkFree(t, all, "after an attempt that took too long")
		if _, err := s.Acquire(t.Context(), request("x", 300*time.Millisecond)); err != nil {
			t.Errorf("Acquire for 300 ms: %v", err)
		}
	})
}

// shortPromise is a member that promises half of the requested TTL.
type shortPromise struct{ conn }

func (b shortPromise) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL /= 2
	return b.conn.Acquire(ctx, req)
}

// acquireWithShortPromise returns a lock of three members, of which the third one promises half of
// the TTL.
func acquireWithShortPromise(t *testing.T) (*quorum.Store, []*fakeMember, driver.Grant) {
	t.Helper()
	all := fakeMembers(3)
	setDelay(all[2:], time.Millisecond)
	s, err := quorum.New([]driver.Store{conn{all[0]}, conn{all[1]}, shortPromise{conn{all[2]}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	grant := mustAcquire(t, s, request("x", time.Minute))
	time.Sleep(time.Second) // the third member has granted it, too
	return s, all, grant
}

// TestShortPromiseDoesNotCountForRenewal: a member that promises less than the members of the
// majority did does not count for a renewal.
func TestShortPromiseDoesNotCountForRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all, grant := acquireWithShortPromise(t)
		defer s.Close()
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatal(errs)
		}
		all[1].set(gone)
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs == nil || !errors.Is(errs[0], driver.ErrUnreachable) {
			t.Errorf("renewed for %v by two of three members, of which one promised half of it: %v", grant.TTL, errs)
		}
	})
}

// TestUnansweredPromiseDoesNotCountForRenewal: a member whose answer to the attempt was lost may promise
// less than the members of the majority did. It counts for a renewal when its promise is known.
func TestUnansweredPromiseDoesNotCountForRenewal(t *testing.T) {
	for promise, wrap := range map[string]func(conn) driver.Store{
		"short": func(c conn) driver.Store { return shortPromise{c} },
		"whole": func(c conn) driver.Store { return c },
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(3)
				s, err := quorum.New([]driver.Store{conn{all[0]}, conn{all[1]}, wrap(conn{all[2]})}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				settle(t, s)
				all[2].set(lost)
				grant := mustAcquire(t, s, request("x", time.Minute))
				time.Sleep(time.Second) // the third member has granted it, too
				all[2].set(up)
				all[1].set(gone)
				errs := s.Renew(t.Context(), []driver.Grant{grant})
				if counts := errs == nil; counts != (promise == "whole") {
					t.Errorf("renewed by two of three members, of which one has not answered what it promises: %v", errs)
				}
			})
		})
	}
}

// keepsTTL is a member whose locks keep the TTL that they were first acquired with, as those of
// ZooKeeper and etcd do.
type keepsTTL struct {
	conn
	mu   *sync.Mutex
	ttls map[driver.Owner]time.Duration
}

func (k keepsTTL) ttl(owner driver.Owner, asked time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.ttls[owner]; !known {
		k.ttls[owner] = asked
	}
	return k.ttls[owner]
}

func (k keepsTTL) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL = k.ttl(req.Owner, req.TTL)
	return k.conn.Acquire(ctx, req)
}

func (k keepsTTL) Renew(ctx context.Context, grants []driver.Grant) []error {
	kept := slices.Clone(grants)
	for i := range kept {
		kept[i].TTL = k.ttl(kept[i].Owner, kept[i].TTL)
	}
	return k.conn.Renew(ctx, kept)
}

// TestLongerTTLIsPromisedOnlyIfMembersKeepIt: an owner that asks again for longer is promised no
// more than its members keep.
func TestLongerTTLIsPromisedOnlyIfMembersKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		members := make([]driver.Store, len(all))
		for i, c := range all {
			members[i] = keepsTTL{conn{c}, new(sync.Mutex), make(map[driver.Owner]time.Duration)}
		}
		s, err := quorum.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		req := request("x", 10*time.Second)
		mustAcquire(t, s, req)
		req.TTL = time.Minute
		again := mustAcquire(t, s, req)
		for range 2 {
			time.Sleep(again.TTL - time.Millisecond)
			if _, err := open(t, all).Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("the lock ended before the promised %v: %v", again.TTL, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{again}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}
