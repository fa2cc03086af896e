package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// lateMember is a member whose calls may take long to reach its server. The caller leaves when
// its context ends, and the call is still carried out. As every store must, the member undoes
// an acquisition that is carried out after its release.
type lateMember struct {
	*memlock.Store
	log   *attempts.Log
	loses func() bool          // it never learns the end of a call whose caller has left
	delay func() time.Duration // of each call
	lag   atomic.Pointer[lag]  // nil if nothing is held
}

// lag holds calls until over is closed.
type lag struct {
	over chan struct{}
	held sync.WaitGroup // calls that have not been carried out
}

func newLateMember(server *memlock.Store, loses func() bool, delay func() time.Duration) *lateMember {
	m := &lateMember{Store: server, loses: loses, delay: delay}
	m.log = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return server.Release(ctx, driver.Grant{Name: name, Owner: owner})
	})
	return m
}

// send carries out f after a delay. If the context ends first, send calls left, and then
// ended when f has been carried out.
func (m *lateMember) send(ctx context.Context, left func() (ended func(bool)), f func(ctx context.Context)) error {
	done := make(chan struct{})
	lag := m.lag.Load()
	if lag != nil {
		lag.held.Add(1)
	}
	time.AfterFunc(m.delay(), func() {
		if lag != nil {
			<-lag.over
			defer lag.held.Done()
		}
		f(context.WithoutCancel(ctx))
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	ended := left()
	if m.loses() {
		ended(false)
		return context.Cause(ctx)
	}
	go func() {
		<-done
		ended(true)
	}()
	return context.Cause(ctx)
}

func ignoreEnd() func(bool) { return func(bool) {} }

func (m *lateMember) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	type outcome struct {
		grant driver.Grant
		err   error
	}
	result := make(chan outcome, 1)
	err := m.send(ctx, func() func(bool) { return m.log.Leave(req.Name, req.Owner) }, func(ctx context.Context) {
		grant, err := m.Store.Acquire(ctx, req)
		result <- outcome{grant, err}
	})
	if err != nil {
		return driver.Grant{}, err
	}
	o := <-result
	return o.grant, o.err
}

func (m *lateMember) Renew(ctx context.Context, grants []driver.Grant) []error {
	result := make(chan []error, 1)
	if err := m.send(ctx, ignoreEnd, func(ctx context.Context) { result <- m.Store.Renew(ctx, grants) }); err != nil {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return <-result
}

func (m *lateMember) Release(ctx context.Context, grant driver.Grant) error {
	released, err := m.log.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	result := make(chan error, 1)
	if err := m.send(ctx, ignoreEnd, func(ctx context.Context) { result <- m.Store.Release(ctx, grant) }); err != nil {
		return err
	}
	return <-result
}

// TestLateAcquisitionIsUndone: an acquisition that reaches a member after the quorum has
// released the lock leaves nothing there.
func TestLateAcquisitionIsUndone(t *testing.T) {
	for _, loses := range []bool{false, true} {
		for _, late := range []time.Duration{60 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
			for _, slow := range []int{2, 3} { // of five: a lock is granted, or not
				t.Run(fmt.Sprintf("%d members, %v, lost %v", slow, late, loses), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { lateAcquisition(t, slow, late, loses) })
				})
			}
		}
	}
}

func lateAcquisition(t *testing.T, slow int, late time.Duration, loses bool) {
	servers, members := make([]*memlock.Store, 5), make([]driver.Store, 5)
	var delay atomic.Int64
	for i := range members {
		servers[i] = memlock.New()
		members[i] = servers[i]
		if i < slow {
			m := newLateMember(servers[i], func() bool { return loses }, func() time.Duration { return time.Duration(delay.Load()) })
			defer m.log.Close()
			members[i] = m
		}
	}
	s, err := quorum.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	delay.Store(int64(late))
	req := request("x", time.Hour)
	grant, err := s.Acquire(t.Context(), req)
	if (err == nil) != (slow == 2) {
		t.Fatalf("Acquire with %d of 5 members late: %v", slow, err)
	}
	delay.Store(0)
	if err != nil {
		grant = driver.Grant{Name: req.Name, Owner: req.Owner}
	}
	if err := s.Release(t.Context(), grant); err != nil && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Release: %v", err)
	}
	time.Sleep(2*late + 2*time.Second)
	for i, server := range servers {
		for info := range server.List(t.Context(), "") {
			t.Errorf("member %d holds %q", i+1, info.Name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// retrying repeats calls of unknown outcome and split votes, as a waiter of dlock does. If only three
// members of five hold a lock and one of them is late, its release has an unknown outcome, and a contender
// finds no majority for any holder.
type retrying struct{ *quorum.Store }

const retries = 20 // enough for a member that is late in a fourth of all calls

func (p retrying) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	for range retries {
		grant, err = p.Store.Acquire(ctx, req)
		held, refused := errors.AsType[*driver.HeldError](err)
		if !refused || held.Token != 0 || backoff.Sleep(ctx, held.Remaining) != nil {
			break
		}
	}
	return grant, err
}

func (p retrying) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	for range retries {
		if errs = p.Store.Renew(ctx, grants); !errors.Is(errors.Join(errs...), driver.ErrUnreachable) {
			break
		}
	}
	return errs
}

func (p retrying) Release(ctx context.Context, grant driver.Grant) (err error) {
	for i := range retries {
		switch err = p.Store.Release(ctx, grant); {
		case i > 0 && errors.Is(err, driver.ErrNotHeld): // the first call released it
			return nil
		case !errors.Is(err, driver.ErrUnreachable):
			return err
		}
	}
	return err
}

// TestConformanceWithLateMember runs the kit on a quorum with a member that often answers too late.
func TestConformanceWithLateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 300 * time.Millisecond
		servers := make([]*memlock.Store, 5)
		for i := range servers {
			servers[i] = memlock.New()
		}
		connect := func() (all []*lateMember) {
			for i, server := range servers {
				m := newLateMember(server, func() bool { return rand.N(2) == 0 }, func() time.Duration {
					if i == 2 && rand.N(4) == 0 {
						return timeout/2 + rand.N(2*timeout)
					}
					return 5 * time.Millisecond // so that a clause that tries for a while tries less often
				})
				t.Cleanup(func() { _ = m.log.Close() })
				all = append(all, m)
			}
			return all
		}
		quorumOf := func(all []*lateMember) (driver.Store, error) {
			members := make([]driver.Store, len(all))
			for i, m := range all {
				members[i] = m
			}
			s, err := quorum.New(members, &quorum.Options{MemberTimeout: timeout})
			return retrying{s}, err
		}
		members := connect()
		err := drivertest.Check(t.Context(), drivertest.Config{
			Open: func(context.Context) (driver.Store, error) { return quorumOf(members) },
			TTL:  4 * timeout,
			Delayed: func(context.Context) (driver.Store, func() func(), error) {
				slow := connect() // for this clause alone
				s, err := quorumOf(slow)
				return s, func() func() {
					lag := &lag{over: make(chan struct{})}
					for _, m := range slow {
						m.lag.Store(lag)
					}
					return func() {
						for _, m := range slow {
							m.lag.Store(nil)
						}
						close(lag.over)
						lag.held.Wait()
					}
				}, err
			},
			Leftovers: func(ctx context.Context) (left []string, err error) {
				for i, server := range servers {
					for info := range server.List(ctx, "") {
						left = append(left, fmt.Sprintf("%q at member %d", info.Name, i+1))
					}
				}
				return left, nil
			},
		})
		if err != nil {
			t.Error(err)
		}
	})
}

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

// TestMembersWithoutAMajorityAreUnreachable: one member renews, one does not hold the lock, and one
// promises too little. No member failed, and the outcome is still unknown.
func TestMembersWithoutAMajorityAreUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all, grant := acquireWithShortPromise(t)
		defer s.Close()
		all[1].restartEmpty()
		errs := s.Renew(t.Context(), []driver.Grant{grant})
		if errs == nil || !errors.Is(errs[0], driver.ErrUnreachable) || errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("want ErrUnreachable and not ErrNotHeld, got: %v", errs)
		}
	})
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
