package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// minTTL is the shortest lease that a server with the usual election timeout
// grants.
const minTTL = 2 * time.Second

// lease is an etcd lease, which all locks with the same TTL share. Its fields but
// turn and seconds are guarded by the mu of the store.
type lease struct {
	seconds int64         // what is asked for
	turn    chan struct{} // full while somebody asks the server about it

	id        clientv3.LeaseID // zero until it is granted
	ttl       time.Duration    // as granted
	refreshed time.Time        // when the last message that renewed it was sent
	sent      clock.Instant    // the same on a clock that counts suspension
	again     time.Time        // not before this is the steward to try again

	roused time.Time // when those who wait on it were last told to ask

	gone    bool // it has ended
	retired bool // it gets no new locks, and ends with its last one
	holds   map[*hold]struct{}
	// trash are keys that must not exist and perhaps will: an attempt to write
	// them, or to delete them, went unanswered. They are deleted again with
	// every renewal, and end with the lease at the latest.
	trash map[string]struct{}
}

// errLeaseGone says that the lease has ended.
var errLeaseGone = errors.New("the lease has ended")

// room is by how much a lock may be granted for less than the lease lasts. It is
// how old the last renewal of a lease may be that needs none.
func (l *lease) room() time.Duration { return min(l.ttl/10, time.Second) }

// promise is the TTL of a lock on this lease.
func (l *lease) promise(asked time.Duration) time.Duration { return min(asked, l.ttl-l.room()) }

// leaseFor returns the lease for new locks with that TTL, just renewed.
func (s *Store) leaseFor(ctx context.Context, ttl time.Duration) (*lease, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	for {
		s.mu.Lock()
		l := s.leases[seconds]
		if l == nil {
			l = &lease{seconds: seconds, turn: make(chan struct{}, 1), holds: make(map[*hold]struct{}), trash: make(map[string]struct{})}
			s.leases[seconds] = l
			s.all[l] = struct{}{}
		}
		s.mu.Unlock()
		err := s.refresh(ctx, l)
		if !errors.Is(err, errLeaseGone) || ctx.Err() != nil {
			return l, err
		}
	}
}

// refresh makes sure that the lease was renewed a moment ago.
func (s *Store) refresh(ctx context.Context, l *lease) error {
	if done, err := s.isFresh(l); done {
		return err
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return s.explain(ctx.Err())
	}
	defer func() { <-l.turn }()
	if done, err := s.isFresh(l); done { // thanks to the one before
		return err
	}
	if l.id == 0 { // nobody else writes it
		return s.grant(ctx, l)
	}
	return s.keepAlive(ctx, l)
}

// isFresh says whether nothing is left to do.
func (s *Store) isFresh(l *lease) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gone {
		return true, errLeaseGone
	}
	if l.id == 0 {
		return false, nil
	}
	if s.age(l) > l.ttl && len(l.holds) == 0 {
		s.forgetLease(l) // it has ended, or does so soon
		return true, errLeaseGone
	}
	return s.age(l) < l.room(), nil
}

// age is how long ago the lease was renewed. s.mu is held.
func (s *Store) age(l *lease) time.Duration { return s.clock.Now() - l.sent }

// grant asks for the lease. One that was perhaps granted unheard is given back.
func (s *Store) grant(ctx context.Context, l *lease) error {
	id := newLeaseID()
	var sent clock.Instant
	var ttl int64
	err := s.try(ctx, func(ctx context.Context, c *conn) (err error) {
		sent = s.clock.NoLaterThanNow()
		ttl, err = c.grantLease(ctx, id, l.seconds)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.forgetLease(l)
		if !isCertain(err) && !s.backgroundLocked(func() { s.giveBack(id) }) {
			l.id = id // Close revokes it
			s.all[l] = struct{}{}
		}
		return s.explain(err)
	}
	l.id = id
	s.renewed(l, ttl, sent)
	return nil
}

// newLeaseID returns a number of our own, so that a lease may be asked for twice.
func newLeaseID() clientv3.LeaseID { return clientv3.LeaseID(rand.Int64N(math.MaxInt64-1) + 1) }

// grantLease asks for a lease, and renews it if an earlier try was granted.
func (c *conn) grantLease(ctx context.Context, id clientv3.LeaseID, seconds int64) (ttl int64, err error) {
	reply, err := c.leaser.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: seconds})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
		return c.keepAliveOnce(ctx, id)
	}
	return reply.GetTTL(), err
}

// renewed takes note of a lease that lasts so many seconds from then on. s.mu is held.
func (s *Store) renewed(l *lease, ttl int64, sent clock.Instant) {
	l.ttl, l.sent = time.Duration(ttl)*time.Second, sent
	l.refreshed = time.Now().Add(-s.age(l))
}

// giveBack revokes a lease that is perhaps there. If that fails it expires.
func (s *Store) giveBack(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	_ = s.revokeOnce(ctx, id)
}

// revokeOnce ends a lease on the server. One that has ended is no error.
func (s *Store) revokeOnce(ctx context.Context, id clientv3.LeaseID) error {
	err := s.try(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.leaser.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(id)}, grpc.WaitForReady(true))
		return err
	})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// keepAlive renews the lease, in one message and without the loop of the client,
// which does not pause while there is no connection.
func (s *Store) keepAlive(ctx context.Context, l *lease) error {
	var sent clock.Instant
	var ttl int64
	err := s.try(ctx, func(ctx context.Context, c *conn) (err error) {
		sent = s.clock.NoLaterThanNow()
		ttl, err = c.keepAliveOnce(ctx, l.id)
		return err
	})
	if err == nil && ttl > 0 {
		s.mu.Lock()
		s.renewed(l, ttl, sent)
		s.mu.Unlock()
		return nil
	}
	if err == nil || errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		s.lose(l)
		return errLeaseGone
	}
	return s.explain(err)
}

func (c *conn) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // of the stream
	defer cancel()
	stream, err := c.leaser.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	reply, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	_ = stream.CloseSend() // the answer is there
	return reply.TTL, nil
}

// lose ends a lease that the server does not know any more, and all its locks.
func (s *Store) lose(l *lease) {
	s.mu.Lock()
	s.forgetLease(l)
	var lost []func()
	for h := range l.holds {
		lost = append(lost, s.unbind(h)...)
	}
	s.mu.Unlock()
	for _, f := range lost {
		f()
	}
}

// forgetLease makes the next one who wants a lease ask for a new one. s.mu is held.
func (s *Store) forgetLease(l *lease) {
	l.gone = true
	s.retire(l)
	delete(s.all, l)
}

// retire takes no more locks on the lease. s.mu is held.
func (s *Store) retire(l *lease) {
	l.retired = true
	if s.leases[l.seconds] == l {
		delete(s.leases, l.seconds)
	}
}

// settle ends a retired lease that has no locks any more, and with it whatever
// may still come to be written. s.mu is held.
func (s *Store) settle(l *lease) {
	if !l.retired || l.gone || len(l.holds) > 0 {
		return
	}
	s.backgroundLocked(func() {
		ctx, cancel := context.WithTimeout(s.ctx, callLimit)
		defer cancel()
		s.revoke(ctx, l)
	})
}

// revoke ends a lease on the server. If that fails, nobody renews it.
func (s *Store) revoke(ctx context.Context, l *lease) {
	if s.revokeOnce(ctx, l.id) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLease(l)
}

// sweep deletes what must not exist.
func (s *Store) sweep(ctx context.Context, l *lease) {
	s.mu.Lock()
	keys := make([]string, 0, len(l.trash))
	for key := range l.trash {
		keys = append(keys, key)
	}
	s.mu.Unlock()
	_ = s.deleteAll(ctx, keys) // they are tried again, and end with the lease
}

// explainLease is for those who only see that the lock is gone.
func explainLease(err error) error {
	if errors.Is(err, errLeaseGone) {
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	return err
}
