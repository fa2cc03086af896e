package sqlservers

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// batchRig is a store behind a network in which calls are made to share a transaction.
type batchRig struct {
	store   *sqllock.Store
	network *proxy.Proxy
}

// untilShared tries again until calls shared a transaction: whether they do depends on the
// moment at which they come.
func (s target) untilShared(t *testing.T, rounds int, try func(r batchRig) (shared bool)) {
	t.Helper()
	store, network := s.behindProxy(t)
	warm(t, store)
	for range rounds {
		if try(batchRig{store, network}) {
			return
		}
	}
	t.Errorf("two calls did not share a transaction in %d rounds", rounds)
}

// occupy makes all that write at once wait until deliver is called, so that the calls
// which come meanwhile share a transaction. end waits for the writers and undoes what they did:
// until then nothing else may share a transaction. Their outcome is expected, too, because a
// writer may meet the fault of the test.
func (r batchRig) occupy(t *testing.T, expected func(error) bool) (deliver, end func()) {
	t.Helper()
	var work sync.WaitGroup
	var reqs []driver.Request
	var conns []*proxy.Conn
	for _, name := range []string{"v", "w"} {
		req := request(name)
		kept := keep(r.network, carriesHolder(req), func() {})
		work.Go(func() {
			if _, err := r.store.Acquire(within(t), req); err != nil && !expected(err) {
				t.Errorf("a writer: %v", err)
			}
		})
		reqs, conns = append(reqs, req), append(conns, kept(t))
	}
	deliver = sync.OnceFunc(func() {
		<-time.After(lateInside) // for the calls to queue behind the writers
		for _, c := range conns {
			c.Deliver()
		}
	})
	return deliver, func() {
		deliver()
		work.Wait()
		for _, req := range reqs {
			undo(t, r.store, req)
		}
	}
}

// TestLateBatch: an attempt shares a transaction with another one, which goes on when the
// caller leaves. It leaves no lock behind.
func TestLateBatch(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		other := s.open(t)
		s.untilShared(t, 30, func(r batchRig) bool {
			release(t, r.store, acquire(t, r.store, "x")...) // a name that was refused would be read first
			deliver, end := r.occupy(t, succeeds)
			defer end()
			req, neighbour := lateRequest(), request("y")
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var late *proxy.Conn
			r.network.OnRequest(carriesHolder(req), func(c *proxy.Conn) {
				late = c
				c.Hold()
				leave()
				time.AfterFunc(lateInside, c.Deliver)
			})
			committed := r.network.OnRequest(isCommit, nil)
			left, stayed := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := r.store.Acquire(ctx, req)
				left <- err
			}()
			go func() {
				_, err := r.store.Acquire(within(t), neighbour)
				stayed <- err
			}()
			deliver()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatalf("an attempt that was cancelled: %v; want Canceled", err)
			}
			undo(t, r.store, req)
			if err := <-stayed; err != nil {
				t.Errorf("the attempt whose caller stayed: %v", err)
			}
			defer undo(t, r.store, neighbour)
			late.Deliver()
			settle(t, r.network)
			freeSoon(t, other)
			return isClosed(committed)
		})
	})
}

// TestLostBatch: releases which share a transaction do not report a loss when the answer to
// its commit gets lost. They are not made again, because they would find nothing.
func TestLostBatch(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		s.releaseTogether(t, func(network *proxy.Proxy, _ driver.Grant) <-chan struct{} {
			return network.LoseReply(isCommit, true)
		}, func(err error) bool { return errors.Is(err, driver.ErrUnreachable) })
	})
}

// TestUndoneBatch: calls which share a transaction are made again, one by one, if the
// transaction fails before it is committed.
func TestUndoneBatch(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		s.releaseTogether(t, func(network *proxy.Proxy, held driver.Grant) <-chan struct{} {
			return network.OnRequest(carriesOwner(held.Owner), (*proxy.Conn).Reset)
		}, succeeds)
	})
}

// beginsTx finds the statement before or at the beginning of a transaction.
func beginsTx(request []byte) bool {
	return bytes.Contains(request, []byte("dlock_idle")) || bytes.Contains(request, []byte("idle_in_transaction"))
}

// TestBatchBesideALockedRow: another program keeps the row of a lock locked. That delays no call for
// another name that shares its transaction, and the locks that these calls get stay.
func TestBatchBesideALockedRow(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		admin, mode := s.admin(t), driver.Mode{}
		try := func(r batchRig) bool {
			release(t, r.store, acquire(t, r.store, "a", "z")...)
			unlock := lockFreeLocks(t, admin, r.store, "m")
			defer unlock()
			deliver, end := r.occupy(t, succeeds)
			defer end()
			shared := r.network.OnRequest(beginsTx, nil)
			type result struct {
				grant driver.Grant
				err   error
			}
			attempt := func(mode driver.Mode, name string) <-chan result {
				ended := make(chan result, 1)
				go func() {
					grant, err := r.store.Acquire(within(t), requestIn(mode, name))
					ended <- result{grant, err}
				}()
				return ended
			}
			a, m, z := attempt(driver.Mode{}, "a"), attempt(mode, "m"), attempt(driver.Mode{}, "z")
			deliver()
			for _, ended := range []<-chan result{a, z, m} {
				if ended == m {
					unlock()
				}
				got := await.Event(t, ended, "the answer to an attempt")
				if got.err != nil {
					t.Fatalf("an attempt beside a row that is locked: %v", got.err)
				}
				defer release(t, r.store, got.grant)
			}
			return isClosed(shared)
		}
		for _, mode = range []driver.Mode{{}, {Shared: true}} {
			s.untilShared(t, 30, try)
		}
	})
}

// TestBatchLocksRowsInOrder: calls that share a transaction lock the rows in the order of the names, as LockAll
// does. In another order, such as that of the rows on the disk, the two would wait for each other.
func TestBatchLocksRowsInOrder(t *testing.T) {
	for _, locked := range []string{"m", "y"} {
		t.Run(locked, func(t *testing.T) {
			t.Parallel()
			s := postgres.target(t)
			admin := s.admin(t)
			s.untilShared(t, 30, func(r batchRig) bool {
				held := acquire(t, r.store, "z", "y")
				release(t, r.store, acquire(t, r.store, "m")...)
				unlock := lockRows(t, admin, "dlock_locks", locked)
				defer unlock()
				deliver, end := r.occupy(t, succeeds)
				defer end()
				var calls sync.WaitGroup
				released := r.network.OnRequest(func(request []byte) bool {
					return carriesOwner(held[0].Owner)(request) && carriesOwner(held[1].Owner)(request)
				}, nil)
				for _, grant := range held {
					calls.Go(func() {
						if err := r.store.Release(within(t), grant); err != nil {
							t.Errorf("Release(%q): %v", grant.Name, err)
						}
					})
				}
				req := request("m")
				attempted := r.network.OnRequest(carriesHolder(req), nil)
				begun := r.network.OnRequest(beginsTx, nil)
				calls.Go(func() {
					if _, err := r.store.Acquire(within(t), req); err != nil {
						t.Errorf("Acquire: %v", err)
					}
				})
				deliver()
				s.waitBlocked(t, admin, 1)
				shared := isClosed(begun) && isClosed(attempted) && (locked == "m" || isClosed(released))
				free := number(t, admin, `SELECT count(*) FROM (SELECT 1 FROM dlock_locks WHERE name = 'z' FOR UPDATE SKIP LOCKED) AS f`)
				if shared && free != 1 {
					t.Errorf("the row of z is locked before that of %s", locked)
				}
				unlock()
				calls.Wait()
				undo(t, r.store, req)
				return shared
			})
		})
	}
}

// releaseTogether lets two releases share a transaction that has a fault. None of them
// reports a loss; expected says which outcome shows that they shared it.
func (s target) releaseTogether(t *testing.T, fault func(*proxy.Proxy, driver.Grant) <-chan struct{}, expected func(error) bool) {
	t.Helper()
	s.untilShared(t, 30, func(r batchRig) bool {
		held := acquire(t, r.store, "x", "y")
		deliver, end := r.occupy(t, expected)
		defer end()
		happened := fault(r.network, held[0])
		released := make(chan error, len(held))
		for _, grant := range held {
			go func() { released <- r.store.Release(within(t), grant) }()
		}
		deliver()
		shared := true
		for range held {
			err := <-released
			if errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of a lock that was held: %v", err)
			}
			shared = shared && expected(err)
		}
		for _, grant := range held { // should the transaction not have been committed
			undo(t, r.store, driver.Request{Name: grant.Name, Owner: grant.Owner})
		}
		return shared && isClosed(happened)
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func succeeds(err error) bool { return err == nil }
